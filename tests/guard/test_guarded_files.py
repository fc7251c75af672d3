"""A running guard's files: its trail, what a restart must not forget, and baselines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")
pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from click.testing import CliRunner

from otel_specdecode.cli import main
from otel_specdecode.guard.baseline_file import read_baseline
from otel_specdecode.guard.policy import Audit
from otel_specdecode.guard.trail import read_trail
from otel_specdecode.testing.capture import Telemetry
from tests.guard.joined import (
    guarded,
    paths,
    policy,
    transitions,
)
from tests.guard.pair import ALWAYS, K, Models, latest, opens, wait_for

pytestmark = [pytest.mark.mlx, pytest.mark.usefixtures("looks_often")]


# Its files


def test_transitions_are_in_a_trail_that_the_command_reads(
    models: Models, telemetry: Telemetry, tmp_path: Path
) -> None:
    """With what was measured, and no text of anybody."""
    with guarded(policy(ALWAYS, audit=Audit(folder=str(tmp_path / "audit")))):
        opens(models, telemetry)
    shown = CliRunner().invoke(main, ["guard", "log", str(tmp_path / "audit")])
    assert shown.exit_code == 0
    assert "accept_rate" in shown.output
    (entry,) = read_trail(tmp_path / "audit").entries
    (told,) = transitions(telemetry)
    assert entry.transition.value == told["value"]
    assert entry.transition.rung_after == "autoregressive"


def test_the_trails_folder_is_there_from_the_start_and_the_log_says_that_the_guard_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So that nobody has to wait for the first decision to see whether it works."""
    caplog.set_level("INFO", "otel_specdecode")
    with guarded(policy(ALWAYS, audit=Audit(folder=str(tmp_path / "deep" / "audit")))) as guard:
        assert (tmp_path / "deep" / "audit").is_dir()
        assert f"the guard runs: enforce, policy {guard.policy.digest}" in caplog.messages


def test_a_folder_that_cannot_be_made_is_told_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with guarded(policy(ALWAYS, audit=Audit(folder=str(tmp_path / "file" / "audit")))):
        pass
    assert any("audit folder cannot be made (Not a directory)" in each for each in caplog.messages)
    assert str(tmp_path) not in caplog.text


def test_an_open_breaker_is_open_in_the_next_process(models: Models, telemetry: Telemetry, tmp_path: Path) -> None:
    """Its state is on the disk, under the policy that it was made by."""
    audit = Audit(folder=str(tmp_path / "audit"), state=True)
    with guarded(policy(ALWAYS, audit=audit)):
        opens(models, telemetry)
    telemetry.clear()
    with guarded(policy(ALWAYS, audit=audit)):
        models.run(models.draft)
    assert set(paths(telemetry)) == {("autoregressive", "fallback", "accept_rate", 0)}
    telemetry.clear()
    with guarded(policy(0.98, audit=audit)):
        models.run(models.draft)
    assert set(paths(telemetry)) == {("speculative", "normal", None, K)}


FORKS = """
import os, sys
from pathlib import Path
from otel_specdecode.generation.plan import Ask, planner
from otel_specdecode.guard.policy import Audit, Policy
from otel_specdecode.guarded import start_guard
guard = start_guard(Policy(mode="enforce", audit=Audit(folder=sys.argv[1], state=True)))
ask = Ask("mlx", "target", "draft_model", 4)
assert not planner().plan(ask).autoregressive
child = os.fork()
guard.switch(False)
assert planner().plan(ask).fallback_reason == "feature_flag"
if not child:
    guard.switch(True)
    assert not planner().plan(ask).autoregressive
guard.close()
assert planner() is None
if not child:
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_the_child_of_a_fork_plans_on_with_files_of_its_own(tmp_path: Path) -> None:
    """What is switched in one is not in the other."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "audit")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    entries = read_trail(tmp_path / "audit").entries
    by_process: dict[str, list[str]] = {}
    for entry in entries:
        by_process.setdefault(entry.process, []).append(entry.transition.after)
    assert sorted(by_process.values()) == [["open"], ["open", "closed"]]


def test_a_process_without_a_draft_writes_the_baseline_of_one_with(
    models: Models, telemetry: Telemetry, tmp_path: Path
) -> None:
    """No code: a key of its policy, and the file is there while it runs."""
    (tmp_path / "measuring.toml").write_text('[baseline]\nwrite = "baseline.json"\nrequests = 3\n')
    with guarded(tmp_path / "measuring.toml"):
        for _ in range(4):
            models.run()
        wait_for((tmp_path / "baseline.json").exists)
    (usual,) = read_baseline(tmp_path / "baseline.json").values()
    assert usual.requests >= 3
    assert usual.round_seconds
    (tmp_path / "held.toml").write_text('mode = "enforce"\n[baseline]\nsource = "file"\nfile = "baseline.json"\n')
    telemetry.clear()
    with guarded(tmp_path / "held.toml"):
        for _ in range(3):
            models.run(models.draft)
        assert set(paths(telemetry)) == {("speculative", "normal", None, K)}
        assert latest(telemetry, "specdecode.guard.scopes_without_baseline") == {None: 0}


def test_a_saved_state_that_is_of_no_use_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And a first start tells of none. The folder is its owner's alone."""
    audit = Audit(folder=str(tmp_path / "audit"), state=True)
    for _ in range(2):
        with guarded(policy(audit=audit)):
            pass
    assert "saved state" not in caplog.text
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700
    (tmp_path / "audit" / "state-1.json").write_text("torn")
    with guarded(policy(audit=audit)):
        pass
    assert "saved state is not restored, and a new one takes its place: it is not as it was written" in caplog.text
    assert str(tmp_path) not in caplog.text
