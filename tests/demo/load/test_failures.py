"""A load that cannot go on: it ends, says why in one sentence, and leaves nothing behind."""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gguf", reason="needs the [demo] extra")
pytest.importorskip("rich", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [demo] extra")

from otel_specdecode.demo.load import command, crew
from otel_specdecode.demo.load.plan import load_of
from otel_specdecode.demo.needs import DemoError
from tests.otlp_receiver import otlp_receiver

ENGINES: list[Any] = [SimpleNamespace(name="idle", title="Idle")]


class Idle:
    """An engine that nobody gets anything of."""

    def __init__(self, _scratch: Path, _seed: int) -> None:
        pass

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture(autouse=True)
def rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An endpoint, an engine, and a temporary folder that is empty before and after."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(crew, "_streams_of", lambda _: (Idle, ("alone",)))
    with otlp_receiver() as (url, _):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield tmp_path
    assert not list(tmp_path.iterdir())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("load-", "demo-load-"))]


def run() -> None:
    command.run(ENGINES, load_of(60, 1, 1), synthetic=False)


def told(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """Return what the error says under some variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DemoError) as caught:
        run()
    return str(caught.value)


def test_what_fails_once_the_models_are_loaded_ends_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(command, "_announce", fail)
    with pytest.raises(BrokenPipeError):
        run()


@pytest.fixture(params=[0, 2**40], ids=["full", "free"])
def free(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that are free on the disk."""
    room: int = request.param
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=room))
    return room


def cannot_load(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_scratch: Path, _seed: int) -> Idle:
        raise error

    monkeypatch.setattr(crew, "_streams_of", lambda _: (fail, ("alone",)))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/home/ada/x"), "Read-only file system"),
        (shutil.Error([("/home/ada/x", "/home/ada/y", "[Errno 28]")]), "a file cannot be written"),
    ],
)
def test_a_disk_that_takes_nothing_is_told_without_names_of_files(
    error: OSError, why: str, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_load(error, monkeypatch)
    said = told(monkeypatch)
    assert said.startswith(f"the models cannot be prepared: {why if free else 'there is no room left'}; look at")
    assert "ada" not in said


def test_what_else_fails_is_the_fault_of_the_disk_only_if_that_is_full(
    free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_load(RuntimeError("/home/ada/x cannot be compiled"), monkeypatch)
    with pytest.raises(RuntimeError if free else DemoError, match="cannot be compiled" if free else "no room left"):
        run()


def test_no_temporary_folder_is_told_without_the_names_that_were_tried(
    monkeypatch: pytest.MonkeyPatch, rest: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(rest / "ada"))
    said = told(monkeypatch)
    assert "name another in TMPDIR" in said
    assert "ada" not in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_METRIC_EXPORT_INTERVAL", "0"), ("OTEL_BSP_MAX_QUEUE_SIZE", "1"), ("OTEL_SPAN_LINK_COUNT_LIMIT", "-1")],
)
def test_a_value_that_the_sdk_does_not_take_is_told(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, **{variable: value})
    assert said.startswith("the OpenTelemetry SDK refuses a setting (")
    assert "OTEL_BSP_*" in said


def test_a_port_that_is_not_well_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "its port is not well written" in told(
        monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT="localhost:\N{FULLWIDTH DIGIT FOUR}317"
    )
