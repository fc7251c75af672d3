"""The command from outside: what it prints, where, and its exit status."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="needs the [cli] extra")
pytest.importorskip("rich", reason="needs the [cli] extra")

from click.testing import CliRunner, Result

from otel_specdecode.cli import main
from otel_specdecode.doctor import bundle, command
from otel_specdecode.doctor.checks import Check, Report, Section
from otel_specdecode.doctor.redaction import Identity
from otel_specdecode.tiny_pair import model_path
from tests.otlp_receiver import otlp_receiver

SOUND = Report((Section("machine", "Machine", (Check("python", "Python", "ok", "3.12"),)),))
BROKEN = Report((Section("engines", "Engines", (Check("engine.any", "an engine", "error", "none", "install one"),)),))


def runner() -> CliRunner:
    """A runner that keeps standard output and standard error apart, which click does by itself from 8.2 on."""
    if "mix_stderr" in inspect.signature(CliRunner).parameters:
        return CliRunner(mix_stderr=False)
    return CliRunner()


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """What the doctor finds; a test replaces it."""
    found = [SOUND]
    monkeypatch.setattr(command, "gather", lambda question: found[0])
    return found


def doctor(*arguments: str) -> Result:
    return runner().invoke(main, ["doctor", *arguments])


def test_the_exit_status_is_0_unless_something_needed_is_broken(report: list[Report]) -> None:
    assert doctor().exit_code == 0
    report[0] = BROKEN
    result = doctor()
    assert result.exit_code == 1
    assert "fix: install one" in result.stdout


def test_json_is_one_document_and_nothing_else_on_the_output(report: list[Report]) -> None:
    result = doctor("--json")
    assert json.loads(result.stdout)["exit_status"] == 0
    report[0] = BROKEN
    result = doctor("--json")
    assert result.exit_code == json.loads(result.stdout)["exit_status"] == 1


@pytest.mark.parametrize(
    "arguments",
    [["--draft", "x"], ["--n-ctx", "512"], ["--draft-length", "4"], ["--model", "x", "--n-batch", "0"], ["--capture"]],
)
def test_a_wrong_use_is_told_with_status_2(arguments: list[str]) -> None:
    result = doctor(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_capture_is_written_and_said_on_the_error_output(
    report: list[Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_installed", list)
    result = doctor("--json", "--capture", str(tmp_path / "mac.json"))
    assert json.loads(result.stdout)["exit_status"] == 0
    assert "read it before you send it" in result.stderr
    assert bundle.load(tmp_path / "mac.json").content["checks"][0]["id"] == "machine"


def test_a_capture_that_cannot_be_written_is_status_1(
    report: list[Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_installed", list)
    result = doctor("--capture", str(tmp_path / "missing" / "mac.json"))
    assert result.exit_code == 1
    assert "could not be written (No such file or directory)" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_capture_over_something_that_is_there_is_refused_before_anything_is_asked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(command, "gather", asked.append)
    place = tmp_path / "mac.json"
    if kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "elsewhere.json")
    result = doctor("--capture", str(place))
    assert (result.exit_code, asked) == (1, [])
    assert "is there already and stays as it is: name another file" in result.stderr
    assert not (tmp_path / "elsewhere.json").exists()


def test_home_folders_and_folders_of_packages_are_in_neither_output(
    report: list[Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "this_identity", lambda: Identity(("/data/zoe",), ("zoe-b",), ("zoes-box",)))
    told = "/data/zoe/a, /home/planted/b, /srv/planted/lib/site-packages/mlx/c.so, zoe-b"
    report[0] = Report((Section("engines", "Engines", (Check("a", "first", "ok", told, facts={"at": told}),)),))
    text, document = " ".join(doctor().stdout.split()), doctor("--json").stdout
    assert "/data/zoe" not in text + document
    assert "planted" not in text + document
    assert "zoe-b" in text
    assert "zoe-b" not in document


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_an_interrupt_ends_it_at_once_with_status_130() -> None:
    program = (
        "import threading\nfrom otel_specdecode.cli import main\nfrom otel_specdecode.doctor import gather\n"
        "gather.neighbour_checks = gather.engine_checks = gather._host = list\n"
        "gather.telemetry_checks = lambda _: (print('up', flush=True), threading.Event().wait())\nmain()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 130


def run_doctor(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", "from otel_specdecode.cli import main; main()", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**kept, **environ},
    )


@pytest.mark.mlx
@pytest.mark.slow
def test_the_whole_command_on_this_machine_with_a_real_receiver_and_a_real_pair() -> None:
    pytest.importorskip("opentelemetry.proto", reason="needs the [otlp] extra")
    pair = ("--model", str(model_path("target")), "--draft", str(model_path("draft")))
    with otlp_receiver() as (url, received):
        finished = run_doctor(
            "--json",
            *pair,
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_HEADERS="api-key=hunter2",
        )
        assert sorted(received.requests) == ["/v1/logs", "/v1/metrics", "/v1/traces"]
    assert finished.stderr == ""
    assert "hunter2" not in finished.stdout
    document = json.loads(finished.stdout)
    checks: dict[str, Any] = {check["id"]: check for section in document["sections"] for check in section["checks"]}
    assert finished.returncode == document["exit_status"] == 0
    assert [section["id"] for section in document["sections"]] == [
        *("machine", "engines", "host", "telemetry", "neighbours", "pair")
    ]
    assert checks["engine.mlx_lm.hooks"]["status"] == "ok"
    assert checks["otlp.traces"]["facts"]["outcome"] == "accepted"
    assert checks["pair.hazards"]["detail"] == "none foreseen"


@pytest.mark.slow
def test_the_whole_command_with_an_endpoint_that_does_not_answer_is_broken() -> None:
    pytest.importorskip("opentelemetry.proto", reason="needs the [otlp] extra")
    finished = run_doctor(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", COLUMNS="80")
    assert finished.returncode == 1
    assert "Broken: traces, metrics, logs." in " ".join(finished.stdout.split())
    assert finished.stderr == ""
