"""Where the collector and Prometheus are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.finding import find_collector, find_prometheus
from collector.programs import ProgramError


def made(path: Path, age: float = 0.0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o755)
    os.utime(path, (1_700_000_000 - age,) * 2)
    return str(path)


def test_the_variable_comes_before_path_and_path_before_what_was_built(tmp_path: Path) -> None:
    named = made(tmp_path / "named" / "my-collector")
    built = made(tmp_path / "cache" / "otel-specdecode" / "0123" / "otelcol-specdecode")
    contrib = made(tmp_path / "bin" / "otelcol-contrib")
    environment = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert find_collector({**environment, "OTEL_SPECDECODE_COLLECTOR": named}) == named
    assert find_collector(environment) == contrib
    ours = made(tmp_path / "bin" / "otelcol-specdecode")
    assert find_collector(environment) == ours
    assert find_collector({**environment, "PATH": ""}) == built


def test_a_path_is_absolute_however_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = made(tmp_path / "bin" / "prometheus")
    built = made(tmp_path / "cache" / "otel-specdecode" / "0123" / "otelcol-specdecode")
    monkeypatch.chdir(tmp_path)
    assert find_prometheus({"OTEL_SPECDECODE_PROMETHEUS": "./bin/prometheus"}) == program
    assert find_prometheus({"PATH": "bin"}) == program
    assert find_collector({"PATH": "", "XDG_CACHE_HOME": "cache"}) == built


def test_of_several_that_were_built_the_newest_is_taken(tmp_path: Path) -> None:
    builds = tmp_path / "otel-specdecode"
    made(builds / "0123" / "otelcol-specdecode", age=10)
    newest = made(builds / "collector" / "4567" / "otelcol-specdecode")
    made(builds / "89ab" / "otelcol-specdecode", age=20)
    (builds / "cdef").mkdir()
    (builds / "cdef" / "otelcol-specdecode").write_text("a build that was not finished")
    assert find_collector({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}) == newest


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    assert find_collector(environment) is None
    assert find_prometheus(environment) is None


@pytest.mark.parametrize(
    ("find", "variable"),
    [(find_collector, "OTEL_SPECDECODE_COLLECTOR"), (find_prometheus, "OTEL_SPECDECODE_PROMETHEUS")],
)
def test_a_variable_that_names_no_program_is_an_error_and_no_reason_to_look_on(
    find: object, variable: str, tmp_path: Path
) -> None:
    made(tmp_path / "prometheus")
    assert callable(find)
    with pytest.raises(ProgramError, match=variable) as caught:
        find({"PATH": str(tmp_path), variable: str(tmp_path / "absent")})
    assert str(tmp_path) not in str(caught.value)
