"""The collector's files fit each other, and the collector itself takes them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_specdecode.thresholds import thresholds
from scripts import build_collector
from tests.e2e.pipeline import CONFIGURATIONS, collector_program

pytestmark = pytest.mark.source

FILES = ("agent.yaml", "to-gateway.yaml", "bridge.yaml", "gateway.yaml")
RUNS = {
    "agent": ("agent.yaml",),
    "agent of a fleet": ("agent.yaml", "to-gateway.yaml"),
    "agent with bridge": ("agent.yaml", "bridge.yaml"),
    "agent of a fleet with bridge": ("agent.yaml", "to-gateway.yaml", "bridge.yaml"),
    "gateway": ("gateway.yaml",),
}

MODULES = {
    "extensions/file_storage": "extension/storage/filestorage",
    "extensions/health_check": "extension/healthcheckextension",
    "exporters/debug": "exporter/debugexporter",
    "exporters/load_balancing": "exporter/loadbalancingexporter",
    "exporters/nop": "exporter/nopexporter",
    "exporters/otlp_grpc": "exporter/otlpexporter",
    "exporters/otlp_http": "exporter/otlphttpexporter",
    "exporters/prometheus_remote_write": "exporter/prometheusremotewriteexporter",
    "processors/memory_limiter": "processor/memorylimiterprocessor",
    "processors/resource_detection": "processor/resourcedetectionprocessor",
    "processors/tail_sampling": "processor/tailsamplingprocessor",
    "processors/transform": "processor/transformprocessor",
    "receivers/otlp": "receiver/otlpreceiver",
    "receivers/prometheus": "receiver/prometheusreceiver",
}
UNUSED = {"exporters/debug", "exporters/nop", "exporters/otlp_grpc"}
"""For whoever has no store, or one that takes OTLP over gRPC alone."""


def loaded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONFIGURATIONS / name).read_text())
    return found


def components(configuration: dict[str, Any]) -> Iterator[str]:
    """Yield the kind and type of each component that is configured."""
    for kind in ("extensions", "receivers", "processors", "exporters"):
        for name in configuration.get(kind, {}):
            yield f"{kind}/{name.partition('/')[0]}"


def test_the_manifest_lists_exactly_the_components_that_the_configurations_use() -> None:
    used = {component for name in FILES for component in components(loaded(name))} | UNUSED
    manifest = loaded("builder.yaml")
    kinds = ("extensions", "receivers", "processors", "exporters")
    listed = {each["gomod"].split(" ")[0] for kind in kinds for each in manifest[kind]}
    assert {re.sub(r".*/(?=(extension|exporter|processor|receiver)/)", "", each) for each in listed} == {
        MODULES[component] for component in used
    }


def test_all_modules_of_the_manifest_are_of_one_release() -> None:
    manifest = loaded("builder.yaml")
    lines = [each["gomod"].split(" ") for kind in manifest if kind != "dist" for each in manifest[kind]]
    providers = {version for module, version in lines if "/confmap/" in module}
    others = {version for module, version in lines if "/confmap/" not in module}
    assert others == {f"v{manifest['dist']['version']}"} == {f"v{build_collector.release(manifest_text())}"}
    assert len(providers) == 1
    assert providers.pop().startswith("v1.")


def manifest_text() -> str:
    return build_collector.MANIFEST.read_text()


def test_a_program_stands_in_a_place_of_its_own_for_each_manifest_and_go(tmp_path: Path) -> None:
    places = {
        build_collector.place(tmp_path, manifest, go)
        for manifest in (manifest_text(), manifest_text() + "#")
        for go in ("go1.25", "go1.26")
    }
    assert len(places) == 4
    assert build_collector.place(tmp_path, manifest_text(), "go1.25") in places


def test_a_program_that_is_built_already_is_printed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\ntest "$1" = version && echo go version go9.9 some/machine\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    program = build_collector.place(tmp_path, manifest_text(), "go version go9.9 some/machine")
    program.parent.mkdir()
    program.touch()
    assert build_collector.main([str(tmp_path)]) == 0
    assert capfd.readouterr().out == f"{program}\n"


def test_a_build_that_fails_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\ntest "$1" = version && echo go version go9.9 some/machine\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert build_collector.main([str(tmp_path / "made")]) == 1
    assert not [path for path in (tmp_path / "made").rglob("*") if path.is_file()]


def test_gateway_and_agent_take_out_the_same_content() -> None:
    contents = [loaded(name)["processors"]["transform/content"] for name in ("agent.yaml", "gateway.yaml")]
    assert contents[0] == contents[1]


def test_gateway_and_agent_write_to_prometheus_alike() -> None:
    agent, gateway = (loaded(name) for name in ("agent.yaml", "gateway.yaml"))
    assert agent["exporters"]["prometheus_remote_write"] == gateway["exporters"]["prometheus_remote_write"]
    datapoint = [each["processors"]["transform/labels"]["metric_statements"][:2] for each in (agent, gateway)]
    assert datapoint[0] == datapoint[1]


def test_what_the_gateway_calls_a_low_accept_rate_is_what_the_alert_does() -> None:
    policies = {each["name"]: each for each in loaded("gateway.yaml")["processors"]["tail_sampling"]["policies"]}
    (condition,) = policies["low_accept_rate"]["ottl_condition"]["span"]
    (default,) = re.findall(r"OTELCOL_LOW_ACCEPT_RATE:-([0-9.]+)", condition)
    assert float(default) == thresholds()["accept_rate"]["warning"]["4"]


def test_the_readme_names_every_variable_and_no_other() -> None:
    names = re.compile(r"OTELCOL_[A-Z_]+")
    used = {name for file in FILES for name in names.findall((CONFIGURATIONS / file).read_text())}
    assert set(names.findall((CONFIGURATIONS / "README.md").read_text())) == used


@pytest.mark.e2e
@pytest.mark.parametrize("files", RUNS.values(), ids=RUNS)
def test_the_collector_takes_its_configuration(files: tuple[str, ...], tmp_path: Path) -> None:
    options = [part for name in files for part in ("--config", str(CONFIGURATIONS / name))]
    environment = {**os.environ, "OTELCOL_STORAGE": str(tmp_path / "storage")}
    done = subprocess.run(
        [collector_program(), "validate", *options],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
