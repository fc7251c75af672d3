"""Runs a game day: the real collector and Prometheus, and six services of two machines each, every one with its fault.

Which service has which fault is in the file that --truth names, for nobody's eyes but the judge's. Events and spans are
written as JSON lines, for there is no store for them here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from collector.finding import COLLECTOR_VARIABLE, find_collector
from tests.e2e.pipeline import collector, prometheus
from tests.gameday.scenarios import MACHINES, SCENARIOS
from tests.otlp_receiver import Received, otlp_receiver
from tests.programs import ROOT

MINUTE = 60.0
QUIET_MINUTES = (18, 24)
"""When the faults begin: at some time between these minutes, of each service its own."""

RULES = ROOT / "collector" / "prometheus" / "rules"
CONFIGURATION = f"""
global: {{evaluation_interval: 30s}}
rule_files: ["{RULES}/*.yaml"]
storage: {{tsdb: {{out_of_order_time_window: 30m}}}}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for what is stored and told")
    parser.add_argument("--truth", type=Path, required=True, help="file for what really happened")
    parser.add_argument("--minutes", type=float, default=50.0)
    parser.add_argument("--port", type=int, default=19090, help="of Prometheus")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    found = find_collector(os.environ)
    if found is None:
        raise SystemExit("There is no collector: scripts/build_collector.py builds it.")
    os.environ[COLLECTOR_VARIABLE] = found
    begin, rng = time.time(), random.Random(given.seed)
    truth = _truth(begin, rng)
    given.truth.write_text(json.dumps(truth, indent=2))
    with ExitStack() as stack:
        store, received = stack.enter_context(otlp_receiver())
        database = stack.enter_context(prometheus(given.out / "prometheus", CONFIGURATION, port=given.port))
        destinations = {
            "OTELCOL_REMOTE_WRITE_URL": database.write_url,
            "OTELCOL_TRACES_URL": store,
            "OTELCOL_LOGS_URL": store,
        }
        node = stack.enter_context(collector(given.out / "collector", "agent.yaml", **destinations))
        stack.enter_context(_machines(truth, node.grpc, begin + given.minutes * MINUTE, rng))
        sys.stdout.write(f"Prometheus: {database.url}; events.jsonl and spans.jsonl in {given.out}\n")
        sys.stdout.flush()
        while time.time() < begin + given.minutes * MINUTE:
            time.sleep(10)
            _write(given.out, received)


def _truth(begin: float, rng: random.Random) -> dict[str, dict[str, Any]]:
    """Which service has which fault, since when; and when it is deployed, for that or for nothing."""
    services = [f"chat-{number}" for number in range(1, len(SCENARIOS) + 1)]
    rng.shuffle(services)
    truth = {}
    for service, (name, scenario) in zip(services, SCENARIOS.items(), strict=True):
        since = begin + rng.uniform(*QUIET_MINUTES) * MINUTE
        ordinary = begin + rng.uniform(6, 12) * MINUTE
        truth[service] = {
            "scenario": name,
            "cause": scenario.cause,
            "since": since,
            "machines": scenario.machines,
            "tenants": scenario.tenants,
            "deploys": {
                machine: [ordinary + 20 * place]
                + ([since] if scenario.restarts and machine in scenario.machines else [])
                for place, machine in enumerate(MACHINES)
            },
        }
    return truth


@contextmanager
def _machines(
    truth: Mapping[str, Mapping[str, Any]], endpoint: str, until: float, rng: random.Random
) -> Iterator[None]:
    running = []
    try:
        for service, told in truth.items():
            for node in MACHINES:
                command = [
                    sys.executable,
                    "-m",
                    "tests.gameday.machine",
                    "--service",
                    service,
                    "--node",
                    f"{service}-{node}",
                ]
                command += ["--endpoint", endpoint, "--until", str(until), "--seed", str(rng.randrange(1 << 30))]
                command += [part for each in told["deploys"][node] for part in ("--deploy", str(each))]
                if node in told["machines"]:
                    command += ["--scenario", told["scenario"], "--since", str(told["since"])]
                running.append(subprocess.Popen(command, cwd=ROOT))
        yield
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.wait(60)


def _write(folder: Path, received: Received) -> None:
    """Write events and spans as they are now."""
    _lines(folder / "events.jsonl", received.requests.get("/v1/logs", ()), "resource_logs", "scope_logs", "log_records")
    _lines(folder / "spans.jsonl", received.requests.get("/v1/traces", ()), "resource_spans", "scope_spans", "spans")


def _lines(path: Path, requests: Sequence[Any], *levels: str) -> None:
    of_resources, of_scopes, of_items = levels
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w") as file:
        for request in list(requests):
            for resource in getattr(request, of_resources):
                owner = _attributes(resource.resource)
                for scope in getattr(resource, of_scopes):
                    for item in getattr(scope, of_items):
                        file.write(json.dumps(_told(owner, item)) + "\n")
    unfinished.replace(path)  # whoever reads meanwhile has the one or the other, whole


def _told(owner: Mapping[str, Any], item: Any) -> dict[str, Any]:
    names = {field.name for field in item.DESCRIPTOR.fields}
    at = item.start_time_unix_nano if "start_time_unix_nano" in names else item.time_unix_nano
    return {
        "at": time.strftime("%H:%M:%S", time.gmtime(at / 1e9)),
        "name": item.name if "name" in names else item.event_name,
        "service": owner.get("service.name"),
        "node": owner.get("host.name"),
        "instance": owner.get("service.instance.id"),
        "trace": item.trace_id.hex(),
        **_attributes(item),
    }


def _attributes(owner: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in owner.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind in {"string_value", "bool_value", "int_value", "double_value"} else str(value)


if __name__ == "__main__":
    main()
