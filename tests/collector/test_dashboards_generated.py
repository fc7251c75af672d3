"""The committed dashboards are what the generator makes, and fit the schema of Grafana 11.6."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.collector.dashboards import NAMES, dashboard

pytest.importorskip("grafana_foundation_sdk", reason="needs grafana-foundation-sdk, for Python 3.11 and newer")

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from collector.grafana.__main__ import main
from collector.grafana.files import FOLDER, outputs
from collector.grafana.promql import known_series
from collector.grafana.variables import SLOS
from otel_specdecode.telemetry.names import Metric, Metrics

pytestmark = pytest.mark.source

OF_DATA_SOURCES = {"textFormat", "titleFormat", "tagKeys", "step"}
"""Keys of an annotation that data sources read and the schema leaves open."""


def test_the_written_files_are_those_that_the_generator_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_file_and_one_that_nobody_makes_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], root=tmp_path) == 0
    assert main(["--check"], root=tmp_path) == 0
    (tmp_path / FOLDER / "overview.json").write_text("{}\n")
    (tmp_path / FOLDER / "old.json").write_text("{}\n")
    (tmp_path / FOLDER / "notes.md").write_text("\n")
    capsys.readouterr()
    assert main(["--check"], root=tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{FOLDER}/overview.json is out of date: run python -m collector.grafana",
        f"{FOLDER}/notes.md is made by nobody",
        f"{FOLDER}/old.json is made by nobody",
    ]


def test_a_metric_that_is_gone_ends_the_generator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {name: labels for name, labels in known_series().items() if "rollbacks_total" not in name}
    monkeypatch.setattr("collector.grafana.promql.known_series", lambda: left)
    assert main(["--check"]) == 1
    assert "specdecode_rollbacks_total" in capsys.readouterr().err


def test_a_label_that_is_gone_ends_the_generator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {name: labels - {"specdecode_draft_outcome"} for name, labels in known_series().items()}
    monkeypatch.setattr("collector.grafana.expressions.known_series", lambda: left)
    assert main(["--check"]) == 1
    assert "specdecode_draft_outcome" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_dashboard_fits_the_schema(name: str) -> None:
    register_default_plugins()
    loaded = dashboard(name)
    again = json.loads(json.dumps(Dashboard.from_json(loaded), cls=JSONEncoder))
    for annotation in loaded["annotations"].get("list", ()):
        for key in OF_DATA_SOURCES:
            annotation.pop(key, None)
    assert again == loaded


@pytest.mark.parametrize("slo", SLOS.values(), ids=SLOS.keys())
def test_an_slo_is_chosen_among_bounds_of_its_metric(slo: Any) -> None:
    metrics: Mapping[str, Metric] = {one.name: one for one in vars(Metrics).values() if isinstance(one, Metric)}
    assert slo.preset in slo.choices
    assert {float(value) for value in slo.choices} <= set(metrics[slo.metric].buckets or ())
    assert not any(float(value).is_integer() for value in slo.choices)


def test_making_them_twice_makes_the_same() -> None:
    assert outputs() == outputs()
