"""The commands `gate`, `gates init` and `gates check`."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("click", reason="needs the [acceptance] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("rich", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from click.testing import CliRunner, Result

from otel_specdecode.acceptance.gates.policy import PRESETS
from otel_specdecode.acceptance.gates.policy_text import preset_text
from otel_specdecode.acceptance.gates_commands import PRESETS as CHOICES
from otel_specdecode.acceptance.gates_commands import gate, gates
from otel_specdecode.acceptance.records import Arm, Run
from otel_specdecode.acceptance.storage import RunWriter, begin
from tests.acceptance.fakes import MANIFEST, World, arms, fake_run, prompts
from tests.acceptance.gates.cases import DAY

POLICY = """\
[gates.accept_rate]
at_least = 0.4
[gates.round_p95]
at_most = 0.05
[[waivers]]
gate = "round_p95"
who = "A. Reviewer"
reason = "old"
expires = 2020-01-31
"""


def saved(folder: Path, run: Run) -> None:
    begin(folder, run.head)
    writer = RunWriter(folder)
    for line in (*run.results, *run.host, *run.notes):
        writer.add(line)
    writer.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sweep, a soak and a policy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(os, "fsync", lambda file: None)
    Path("gates.toml").write_text(POLICY)
    began = time.time() - 3 * DAY
    saved(tmp_path / "sweep", fake_run(arms((4,)), prompts(10), began=began))
    saved(tmp_path / "soak", fake_run((Arm(4),), prompts(3, max_tokens=300), kind="soak", seconds=1850, began=began))
    return tmp_path


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(gate, arguments)


def test_a_run_that_holds_is_accepted_with_status_0(folder: Path) -> None:
    told = asked("sweep", "--policy", "gates.toml", "--soak", "soak", "--json", "verdict.json")

    assert told.exit_code == 0, told.output
    assert told.output.startswith("accepted fake-sweep and fake-soak, k=4\nTake k=4: ")
    lines = {line.split()[0]: line for line in told.output.splitlines() if line.strip()}
    assert "pass" in lines["accept_rate"]
    assert ">= 0.4" in lines["accept_rate"]
    assert re.search(r" \d+ rounds$", lines["accept_rate"].rstrip())
    assert "<= 50.0 ms" in lines["round_p95"]
    assert json.loads(Path("verdict.json").read_text())["status"] == "accepted"


@pytest.mark.parametrize(
    ("file", "status", "told"),
    [
        ("notes.jsonl", 3, "a line could not be read, notes.jsonl:3: it is not as it was written"),
        ("host.jsonl", 3, "a line could not be read, host.jsonl:"),
        ("results.jsonl", 0, "1 of results.jsonl, where one that is lost is only a sample less"),
    ],
)
def test_a_line_that_could_not_be_read_is_told_and_may_make_a_run_invalid(
    folder: Path, file: str, status: int, told: str
) -> None:
    with (folder / "soak" / file).open("a") as written:
        written.write('{"at": 1\n')
    judged = asked("sweep", "--policy", "gates.toml", "--soak", "soak", "--json", "verdict.json")

    assert judged.exit_code == status, judged.output
    assert any(told in each["why"] for each in json.loads(Path("verdict.json").read_text())["validity"])


def test_a_run_that_fails_is_rejected_with_status_1_and_an_expired_waiver_is_told(folder: Path) -> None:
    Path("gates.toml").write_text(POLICY.replace("0.05", "0.01"))
    told = asked("sweep", "--policy", "gates.toml", "--soak", "soak")

    assert told.exit_code == 1
    assert "rejected fake-sweep" in told.output
    assert "- round_p95 failed" in told.output
    assert "waiver by A. Reviewer (old), expired on 2020-01-31, so it does not count" in " ".join(told.output.split())


def test_a_run_without_a_soak_is_invalid_with_status_3(folder: Path) -> None:
    told = asked("sweep", "--policy", "gates.toml")

    assert told.exit_code == 3
    assert "- sign-off soak of 30 min without a break: not measured, no soak was given" in told.output


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_takes_the_place_of_a_policy(folder: Path, preset: str) -> None:
    told = asked("sweep", "--preset", preset, "--soak", "soak", "--json", "verdict.json")

    assert told.exit_code == 3
    assert json.loads(Path("verdict.json").read_text())["preset"] == preset
    assert "- quality was not measured: no prompt that both arms ran has a check" in told.output


def test_a_waived_failure_is_shown_with_who_and_why(folder: Path) -> None:
    Path("gates.toml").write_text(POLICY.replace("0.05", "0.01").replace("2020", "2999"))
    told = asked("sweep", "--policy", "gates.toml", "--soak", "soak")

    assert told.exit_code == 0
    assert "waiver by A. Reviewer (old), until 2999-01-31" in " ".join(told.output.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing", "--policy", "gates.toml"), "nothing holds no run: name the folder that"),
        (("sweep", "--policy", "none.toml"), "none.toml:1: there is no such file: `otel-specdecode gates init"),
        (("sweep", "--policy", "gates.toml", "--soak", "sweep"), "fake-sweep is a sweep, not a soak"),
        (("sweep", "--policy", "gates.toml", "--arm", "k=9"), 'has no speculative arm "k=9"; it has "k=4".'),
        (("sweep",), "say what to hold it against: --policy FILE, or --preset NAME"),
        (("sweep", "--policy", "gates.toml", "--preset", "batch"), "say what to hold it against"),
        (("sweep", "--policy", "gates.toml", "--json", "none/verdict.json"), "cannot be written: No such file"),
    ],
)
def test_a_wrong_use_ends_with_status_2_and_what_to_do(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    told = asked(*arguments)

    assert told.exit_code == 2
    assert said in told.output


def test_runs_of_different_manifests_are_a_wrong_use(folder: Path) -> None:
    other = {**MANIFEST, "id": "fedcba9876543210", "engine": {"name": "fake", "version": "2"}}
    saved(folder / "other", fake_run((Arm(4),), prompts(1), World(), kind="soak", manifest=other))
    told = asked("sweep", "--policy", "gates.toml", "--soak", "other")

    assert told.exit_code == 2
    assert "engine.version: 1, and 2" in told.output


def test_the_commands_know_every_preset() -> None:
    assert CHOICES == PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_init_prints_or_writes_a_preset_and_check_reads_it(folder: Path, preset: str) -> None:
    printed = CliRunner().invoke(gates, ["init", "--preset", preset])
    written = CliRunner().invoke(gates, ["init", "--preset", preset, "-o", "new.toml"])
    checked = CliRunner().invoke(gates, ["check", "new.toml"])

    assert printed.output == preset_text(preset) == Path("new.toml").read_text()
    assert (written.exit_code, checked.exit_code) == (0, 0)
    assert checked.output.startswith("ok ")
    assert "break_even_margin" in checked.output


def test_init_replaces_no_file(folder: Path) -> None:
    told = CliRunner().invoke(gates, ["init", "-o", "gates.toml"])

    assert (told.exit_code, Path("gates.toml").read_text()) == (2, POLICY)
    assert "gates.toml is there already" in told.output


def test_check_says_what_is_wrong_and_where(folder: Path) -> None:
    Path("gates.toml").write_text("preset = 'balanced'\n[gates.steady]\nat_lest = 1\n")
    told = CliRunner().invoke(gates, ["check", "gates.toml"])

    assert told.exit_code == 2
    assert told.output == "gates.toml:3: [gates.steady] has no key at_lest; did you mean at_least?\n"


def test_check_shows_waivers_and_gates_that_are_off(folder: Path) -> None:
    Path("gates.toml").write_text(POLICY + "[gates.failures]\nat_most = 0\nenabled = false\n")
    told = CliRunner().invoke(gates, ["check", "gates.toml"])

    assert "round_p95 waived until 2020-01-31 by A. Reviewer: old" in told.output
    assert "off" in next(line for line in told.output.splitlines() if line.startswith("failures"))


def test_a_verdict_replaces_no_file_of_a_run_and_no_device(folder: Path) -> None:
    before = (folder / "sweep" / "run.json").read_bytes()
    for place in ("sweep/run.json", "/dev/null"):
        assert asked("sweep", "--policy", "gates.toml", "--json", place).exit_code == 2
    assert (folder / "sweep" / "run.json").read_bytes() == before
    assert not Path("/dev/null").is_file()


def test_a_verdict_that_cannot_be_written_leaves_the_one_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    Path("verdict.json").write_text("before")
    monkeypatch.setattr(Path, "write_text", full)
    told = asked("sweep", "--policy", "gates.toml", "--json", "verdict.json")
    made = CliRunner().invoke(gates, ["init", "-o", "new.toml"])

    assert told.exit_code == made.exit_code == 2
    assert "No space left on device" in told.output
    assert Path("verdict.json").read_text() == "before"
    assert not Path("new.toml").exists()
