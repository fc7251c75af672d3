"""The whole load with the real engines, as a user starts it, into a real receiver."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.telemetry.names import Attr, Enum, Metric, Metrics
from otel_specdecode.testing.checker import assert_conformant
from tests.demo.load.received import Series, series, total
from tests.otlp_receiver import Received, otlp_receiver
from tests.programs import QUIET

for package in ("bokeh", "click", "gguf", "rich", "opentelemetry.exporter.otlp.proto.http"):
    pytest.importorskip(package, reason="needs the [demo] extra")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

REAL, SYNTHETIC = "demo-load", "demo-load-synthetic"

MOST_GIVEN_UP = 0.02
"""Share of the requests that may give up waiting in a load that is looked at."""
SLOWEST = 12.0
"""How many times as slow as asked for a load may run, on a machine that others use too."""

PROGRAM = "from otel_specdecode.cli import main; main()"
SLOW_TO_BEGIN = f"""
import signal
from otel_specdecode.demo import needs

def choose(engine):
    print("begun", flush=True)
    signal.pause()

needs.choose = choose
{PROGRAM}
"""


def start(url: str, *arguments: str, program: str = PROGRAM, **more: str) -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "FORCE_COLOR"))}
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    return subprocess.Popen(
        [sys.executable, "-c", program, "demo-load", *arguments],
        env={**kept, **QUIET, "NO_PROXY": "127.0.0.1", **told, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class Asked:
    """A load in numbers: seconds, requests a second, and when the draft is bad."""

    seconds: float
    rate: float
    burst_at: float
    burst_seconds: float

    def slower(self, times: float) -> Asked:
        """Return one with the same requests over more seconds."""
        return Asked(self.seconds * times, self.rate / times, self.burst_at * times, self.burst_seconds * times)

    def arguments(self) -> list[str]:
        told = {"rate": self.rate, "burst-at": self.burst_at, "burst-seconds": self.burst_seconds}
        return ["--minutes", str(self.seconds / 60), *(f"--{name}={value}" for name, value in told.items())]


@dataclass(frozen=True)
class Ran:
    """A load that has ended."""

    asked: Asked
    document: dict[str, Any]
    text: str
    errors: str
    received: Received

    @property
    def managed(self) -> float:
        """Share of the requests that were begun; 0 where none came."""
        begun: int = self.document["real"]["total"]["requests"]
        given_up: int = self.document["dropped"]
        return begun / max(begun + given_up, 1)

    def of(self, metric: Metric, service: str = REAL) -> Series:
        return series(self.received, service, metric.name)


def ran(folder: Path, asked: Asked, *arguments: str) -> Ran:
    """Run a load; where requests gave up waiting, again and as much slower as the machine was too slow for it.

    What is left of a load that the machine cannot keep up with is not the load that was asked for. The last one is
    looked at whatever it managed.
    """
    times = 1.0
    while True:
        done = ran_once(folder, asked.slower(times), *arguments)
        if done.managed >= 1 - MOST_GIVEN_UP or times == SLOWEST:
            return done
        times = min(times * max(2.0, 1.5 / max(done.managed, 1 / SLOWEST)), SLOWEST)


def ran_once(folder: Path, asked: Asked, *arguments: str) -> Ran:
    file = folder / "sums.json"
    with otlp_receiver() as (url, received):
        process = start(url, *asked.arguments(), *arguments, "--json", str(file))
        text, errors = process.communicate(timeout=asked.seconds + 200)
    assert process.returncode == 0, errors
    return Ran(asked, json.loads(file.read_text(encoding="utf-8")), text, errors, received)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("mlx", marks=pytest.mark.mlx),
        pytest.param("llama_cpp", marks=pytest.mark.llama_cpp),
    ],
)
def short(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """24 seconds on one engine, the last of them with a bad draft."""
    engine: str = request.param
    if engine == "llama_cpp":
        pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    calm = Asked(seconds=24, rate=1.5, burst_at=20, burst_seconds=4)
    return ran(tmp_path_factory.mktemp("load"), calm, "--engine", engine)


def test_every_counter_equals_the_sum_over_the_exported_spans(short: Ran) -> None:
    for service, document in ((REAL, short.document["real"]), (SYNTHETIC, short.document["synthetic"])):
        assert document["groups"]
        for group in document["groups"]:
            check_group(short, service, group)


def check_group(ran: Ran, service: str, group: dict[str, Any]) -> None:
    labels, sums = group["labels"], group["sums"]
    wanted = {name.replace(".", "_"): value for name, value in labels.items()}
    assert total(ran.of(Metrics.GEN_AI_SERVER_REQUEST_DURATION, service), **wanted) == group["requests"]
    for metric, attribute in (
        (Metrics.SPECDECODE_DECODE_PASSES, Attr.SPECDECODE_DECODE_PASSES),
        (Metrics.SPECDECODE_VERIFY_PASSES, Attr.SPECDECODE_VERIFY_PASSES),
        (Metrics.SPECDECODE_DRAFT_PASSES, Attr.SPECDECODE_DRAFT_PASSES),
        (Metrics.SPECDECODE_DRAFT_CALLS, Attr.SPECDECODE_DRAFT_CALLS),
        (Metrics.SPECDECODE_ROLLBACKS, Attr.SPECDECODE_ROLLBACKS),
        (Metrics.SPECDECODE_DRAFT_TOKENS, Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS),
    ):
        assert total(ran.of(metric, service), **wanted) == sums[attribute], (metric.name, labels)
    for outcome in Enum.SPECDECODE_DRAFT_OUTCOME:
        of_outcome = total(ran.of(Metrics.SPECDECODE_DRAFT_TOKENS, service), **wanted, specdecode_draft_outcome=outcome)
        assert of_outcome == sums[f"specdecode.draft.{outcome}_tokens"]


def test_requests_fallbacks_errors_and_hazards_equal_the_sums_too(short: Ran) -> None:
    document = short.document["real"]["total"]
    counts = document["counts"]
    assert total(short.of(Metrics.SPECDECODE_REQUEST_STARTED)) == document["requests"]
    assert total(short.of(Metrics.SPECDECODE_REQUEST_ACTIVE)) == 0
    for metric, attribute in (
        (Metrics.SPECDECODE_FALLBACKS, Attr.SPECDECODE_FALLBACK_REASON),
        (Metrics.SPECDECODE_HAZARDS, Attr.SPECDECODE_HAZARD_ID),
        (Metrics.GEN_AI_SERVER_REQUEST_DURATION, Attr.ERROR_TYPE),
    ):
        counted = counts[Attr.SPECDECODE_HAZARD_IDS if attribute == Attr.SPECDECODE_HAZARD_ID else attribute]
        found: dict[str, float] = {}
        for labels, value in short.of(metric).items():
            name = dict(labels).get(attribute)
            if name is not None and value:
                found[name] = found.get(name, 0) + value
        assert found == counted, metric.name


def test_the_sums_are_those_of_the_spans_that_arrived(short: Ran) -> None:
    arrived = short.received.spans()
    documents = [short.document[name] for name in ("real", "synthetic")]
    assert sum(each["spans"]["exported"] for each in documents) == len(arrived)
    assert all(each["spans"]["exported"] == each["spans"]["ended"] > 0 for each in documents)
    for attribute in (Attr.GEN_AI_USAGE_OUTPUT_TOKENS, Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS):
        told = sum(each["total"]["sums"][attribute] for each in documents)
        assert told == sum(span.attributes.get(attribute, 0) for span in arrived)


def test_it_is_a_mixed_load(short: Ran) -> None:
    real = short.document["real"]
    engine = short.document["engines"][0]
    assert {group["labels"][Attr.GEN_AI_PROVIDER_NAME] for group in real["groups"]} == {engine}
    lengths = {
        (group["labels"][Attr.SPECDECODE_MODE], group["labels"][Attr.SPECDECODE_DRAFT_LENGTH])
        for group in real["groups"]
    }
    assert lengths >= {("autoregressive", "0"), ("speculative", "2"), ("speculative", "4")}
    methods = {group["labels"][Attr.SPECDECODE_METHOD] for group in real["groups"]}
    assert methods == {"none", "draft_model"} | ({"prompt_lookup"} if engine == "llama_cpp" else set())
    assert {group["labels"][Attr.SPECDECODE_CONTEXT_TIER] for group in real["groups"]} == {"short", "mid"}
    counts = real["total"]["counts"]
    assert set(counts[Attr.SPECDECODE_TENANT_ID]) == {"acme", "globex"}
    assert set(counts[Attr.SPECDECODE_FALLBACK_REASON]) == {"zero_draft_length"}
    assert set(counts[Attr.GEN_AI_RESPONSE_FINISH_REASONS]) >= {"stop", "length", "closed", "error"}
    assert set(counts[Attr.ERROR_TYPE]) == {"ValueError" if engine == "llama_cpp" else "RuntimeError"}
    spans = [span.attributes for span in short.received.spans() if span.attributes[Attr.GEN_AI_PROVIDER_NAME] == engine]
    sampled = [span for span in spans if span.get(Attr.GEN_AI_REQUEST_TEMPERATURE)]
    assert sampled
    assert all(span[Attr.GEN_AI_REQUEST_TOP_P] == pytest.approx(0.95) for span in sampled)
    assert {span.get(Attr.SPECDECODE_SESSION_ID) for span in spans} >= {"acme-session", "globex-session"}


def test_requests_overlap(short: Ran) -> None:
    spans = [span for span in short.received.spans() if span.attributes[Attr.GEN_AI_REQUEST_MODEL] == "target"]
    edges = sorted([(span.start, 1) for span in spans] + [(span.end, -1) for span in spans])
    active = most = 0
    for _, change in edges:
        active += change
        most = max(most, active)
    assert most > 2


def test_it_conforms_and_says_nothing_of_what_was_asked(short: Ran) -> None:
    assert_conformant(otlp=short.received.as_json())
    sent = json.dumps(short.received.as_json())
    for text in ("story about", "Repeat this", "Explain", str(Path.home())):
        assert text not in sent + short.text + short.errors + json.dumps(short.document)


def test_a_person_gets_a_table_and_times(short: Ran) -> None:
    assert "Traceback" not in short.errors
    for word in ("demo-load-synthetic", "rollbacks", "accept rate", "Bad draft:", "critical memory pressure", "epoch"):
        assert word in short.text
    assert f"{short.document['real']['total']['requests']:,}" in short.text


@pytest.mark.llama_cpp
def test_a_burst_is_found_where_the_draft_was_bad(tmp_path: Path) -> None:
    """With enough rounds before it for a baseline."""
    pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    many = Asked(seconds=36, rate=8, burst_at=20, burst_seconds=8)
    found = ran(tmp_path, many, "--engine", "llama_cpp", "--no-synthetic-mac")
    assert found.document["real"]["bursts"], found.text
    burst, *more = found.document["real"]["bursts"]
    planned = found.document["bad_draft"]
    assert planned["start"]["epoch"] - found.document["start"]["epoch"] == pytest.approx(found.asked.burst_at)
    assert planned["start"]["epoch"] < burst["start"]["epoch"] < planned["end"]["epoch"]
    # Requests that met the bad draft run on with it to their end.
    assert planned["start"]["epoch"] < burst["end"]["epoch"] < planned["end"]["epoch"] + 15
    assert "globex" in burst["attributes"][Attr.SPECDECODE_BURST_TENANTS]
    assert total(found.of(Metrics.SPECDECODE_ROLLBACK_BURSTS)) == 1 + len(more)
    assert found.document["real"]["total"]["counts"][Attr.SPECDECODE_IN_BURST]["true"] > 10
    assert found.document["synthetic"] is None
    assert "Burst detected:" in found.text


@pytest.fixture
def engine() -> str:
    """One that is installed."""
    for module, name in (("mlx_lm", "mlx"), ("llama_cpp", "llama_cpp")):
        try:
            __import__(module)
        except ImportError:
            continue
        return name
    pytest.skip("needs the [mlx] extra")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nothing listens, held so that nothing else takes it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_cleanly_with_all_that_was_sent(tmp_path: Path, engine: str, number: int, code: int) -> None:
    file = tmp_path / "sums.json"
    with otlp_receiver() as (url, received):
        process = start(url, "--minutes", "5", "--engine", engine, "--rate", "4", "--json", str(file))
        received.wait_for(lambda r: sum(s.attributes[Attr.GEN_AI_REQUEST_MODEL] == "target" for s in r.spans()) > 3, 90)
        began = time.monotonic()
        process.send_signal(number)
        text, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert process.returncode == code, errors
    assert "Stopped before its time." in text
    assert "Traceback" not in errors
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["interrupted"]
    assert document["real"]["spans"]["exported"] + document["synthetic"]["spans"]["exported"] == len(received.spans())
    assert total(series(received, REAL, Metrics.SPECDECODE_REQUEST_STARTED.name)) == document["real"]["spans"]["ended"]


def test_ctrl_c_before_anything_has_begun_ends_it_without_a_traceback(engine: str, closed_port: int) -> None:
    process = start(f"http://127.0.0.1:{closed_port}", "--engine", engine, program=SLOW_TO_BEGIN)
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_if_nobody_reads_what_it_says_it_ends_and_leaves_nothing(tmp_path: Path, engine: str) -> None:
    with otlp_receiver() as (url, _):
        process = start(url, "--minutes", "5", "--engine", engine, TMPDIR=str(tmp_path))
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
    assert not list(tmp_path.glob("otel-specdecode-*"))


def test_if_nothing_was_taken_it_says_where_to_look_and_fails(engine: str) -> None:
    with otlp_receiver() as (url, received):
        process = start(url, "--minutes", "0.05", "--engine", engine, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
        text, errors = process.communicate(timeout=90)
    assert process.returncode == 1
    assert f"no span was taken at {url}, which was spoken to over grpc" in errors
    assert "OTEL_EXPORTER_OTLP_PROTOCOL" in errors
    assert "were not taken" in text
    assert not received.requests


def test_where_nothing_listens_it_says_so_and_what_to_start(engine: str, closed_port: int) -> None:
    process = start(f"http://127.0.0.1:{closed_port}", "--engine", engine)
    text, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert text == ""
    assert f"nothing listens at http://127.0.0.1:{closed_port}" in errors
    assert "make stack" in errors
    assert "GRAFANA_ADMIN_PASSWORD=... docker compose" in errors
    assert "Traceback" not in errors


def test_a_file_that_cannot_be_written_is_told_before_the_load(tmp_path: Path, engine: str) -> None:
    with otlp_receiver() as (url, received):
        process = start(url, "--engine", engine, "--json", str(tmp_path / "absent" / "sums.json"))
        text, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert text == ""
    assert "sums.json cannot be written: No such file or directory" in errors
    assert "Traceback" not in errors
    assert not received.requests


def test_a_signal_that_is_switched_off_is_refused(engine: str) -> None:
    process = start("http://127.0.0.1:9", "--engine", engine, OTEL_TRACES_EXPORTER="none")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "OTEL_TRACES_EXPORTER leaves traces out" in errors


def test_a_service_may_have_another_name(tmp_path: Path, engine: str) -> None:
    with otlp_receiver() as (url, received):
        process = start(url, "--minutes", "0.05", "--engine", engine, OTEL_SERVICE_NAME="shop")
        _, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert series(received, "shop", Metrics.PROCESS_MEMORY_USAGE.name)
    assert series(received, SYNTHETIC, Metrics.PROCESS_MEMORY_USAGE.name)
