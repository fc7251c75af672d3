"""A running guard in a program: what it tells, its files, its draft's memory, and that all is as before without it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")
pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

import mlx.core as mx
import mlx_lm
from click.testing import CliRunner
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider

import otel_specdecode
from otel_specdecode import guarded as joint
from otel_specdecode.cli import main
from otel_specdecode.generation.plan import planner
from otel_specdecode.guard.baseline_file import BaselineError, read_baseline
from otel_specdecode.guard.policy import Audit, Baseline, Policy, Trigger
from otel_specdecode.guard.trail import read_trail
from otel_specdecode.guard_from_environment import GUARD_POLICY, start_guard_from_environment
from otel_specdecode.guarded import RunningGuard, running_guard, start_guard
from otel_specdecode.telemetry import listener
from otel_specdecode.telemetry.guarding import show_guard
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.tiny_pair import PROMPTS, chat_tokens, model_path
from tests.guard.joined import (
    guarded,
    on_behalf_of,
    paths,
    policy,
    run_until,
    transitions,
    violations,
)

pytestmark = pytest.mark.mlx

K = 4
STORY = PROMPTS[0]
ALWAYS = 0.99
"""An accept rate that no window has: the first one trips."""


class Models:
    """The tiny pair."""

    def __init__(self) -> None:
        """Load it once."""
        with capture():
            self.target, self.tokenizer = mlx_lm.load(str(model_path("target")))
            self.draft = load("draft")

    def run(self, draft: Any = None, text: str = STORY, tokens: int = 24) -> list[int]:
        """Make one request."""
        return [int(each.token) for each in self.stream(draft, text, tokens)]

    def stream(self, draft: Any = None, text: str = STORY, tokens: int = 24) -> Iterator[Any]:
        """Ask for tokens."""
        asked = {} if draft is None else {"draft_model": draft, "num_draft_tokens": K}
        prompt = chat_tokens(self.tokenizer, text)
        running: Iterator[Any] = mlx_lm.stream_generate(self.target, self.tokenizer, prompt, max_tokens=tokens, **asked)
        return running


def load(name: Any) -> Any:
    """Load a draft."""
    return mlx_lm.load(str(model_path(name)))[0]


@pytest.fixture(scope="module")
def models() -> Models:
    """One pair for all tests."""
    return Models()


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """MLX-LM instrumented into memory."""
    with capture() as captured:
        yield captured


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the machine and at files."""
    monkeypatch.setattr(joint, "LOOK_EVERY", 0.02)


def opens(models: Models, telemetry: Telemetry) -> None:
    """Make requests until the guard lets none speculate any more."""
    run_until(lambda: bool(transitions(telemetry)), lambda: models.run(models.draft), 10)


def latest(telemetry: Telemetry, metric: str, key: str | None = None) -> dict[Any, float]:
    """A metric's points by one of their labels."""
    return {None if key is None else point.labels[key]: point.value for point in telemetry.points(metric)}


def wait_for(seen: Callable[[], bool]) -> None:
    """Wait for something that another thread does.

    Raises:
        AssertionError: It does not within 20 s.
    """
    ticks = threading.Event()
    run_until(seen, lambda: ticks.wait(0.02), 1000)


# What it tells


def test_everything_that_a_guarded_program_emits_is_as_the_registry_has_it(
    models: Models, telemetry: Telemetry
) -> None:
    """Spans, counters, levels, events and the configuration's policy; fallbacks are requests, of whatever reason."""
    control = Baseline(share=0.25, most_share=0.25, requests=2)
    with guarded(policy(ALWAYS, by="session", baseline=control)) as guard:
        for session in range(8):
            with on_behalf_of(session=f"s{session % 4}", tenant="acme"):
                models.run(models.draft)
                models.run(models.draft)
        guard.canary(True)
        guard.canary(False)
        guard.switch(False)
        models.run(models.draft)
        guard.switch(None)
        found = paths(telemetry)
        assert {(mode, cohort, reason) for mode, cohort, reason, _ in found} == {
            ("speculative", "normal", None),
            ("autoregressive", "control", "control"),
            ("autoregressive", "fallback", "accept_rate"),
            ("autoregressive", "fallback", "feature_flag"),
        }
        reasons = latest(telemetry, "specdecode.fallbacks", Attr.SPECDECODE_FALLBACK_REASON)
        for reason in ("control", "accept_rate", "feature_flag"):
            assert reasons[reason] == sum(count for (_, _, why, _), count in found.items() if why == reason)
        scopes = latest(telemetry, "specdecode.guard.scopes", Attr.SPECDECODE_GUARD_STATE)
        assert set(scopes) == {"closed", "limited", "open", "probing"}
        assert scopes["open"] >= 3
        assert latest(telemetry, "specdecode.canary.results", Attr.SPECDECODE_CANARY_OUTCOME) == {"pass": 1, "fail": 1}
        told = transitions(telemetry)
        assert telemetry.total("specdecode.guard.transitions") == len(told)
        assert [each["trigger"] for each in told][-2:] == ["flag", "flag"]
        assert {each["policy"] for each in told} == {guard.policy.digest}
        assert all(each["observe_only"] is False for each in told)
        assert {each["specdecode.session.id"] for each in told if each["scope"] == "session"} <= {
            f"s{number}" for number in range(4)
        }
        traces = {f"{span.context.trace_id:032x}" for span in telemetry.spans()}
        assert {each["trace_id"] for each in told if each["trigger"] == "accept_rate"} <= traces
        hashes = {point.labels[Attr.SPECDECODE_POLICY_HASH] for point in telemetry.points("specdecode.config.info")}
        assert "none" not in hashes
        assert latest(telemetry, "specdecode.guard.scopes_without_baseline")[None] >= 0
        assert violations(telemetry) == []


def test_a_guard_that_only_observes_tells_the_same_and_changes_nothing(models: Models, telemetry: Telemetry) -> None:
    """Every request runs as asked."""
    plain = models.run(models.draft)
    telemetry.clear()
    source = policy(ALWAYS)
    with guarded(Policy(**{**{key: getattr(source, key) for key in source.__struct_fields__}, "mode": "observe_only"})):
        for _ in range(4):
            assert models.run(models.draft) == plain
        told = transitions(telemetry)
        assert told[0]["observe_only"] is True
        assert told[0]["state"] == "open"
    assert set(paths(telemetry)) == {("speculative", "normal", None, K)}
    assert violations(telemetry) == []


def test_what_the_guard_did_before_telemetry_was_there_is_told_then(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag file says `off` as the program starts; the first request says where telemetry goes."""
    monkeypatch.setattr(listener, "_last_bound", None)
    (tmp_path / "speculation").write_text("off\n")
    (tmp_path / "policy.toml").write_text('mode = "enforce"\nflag_file = "speculation"\n')
    with guarded(tmp_path / "policy.toml"), capture() as telemetry:
        models.run(models.draft)
        (told,) = transitions(telemetry)
        assert (told["trigger"], told["state"]) == ("flag", "open")
        assert set(paths(telemetry)) == {("autoregressive", "fallback", "feature_flag", 0)}


def test_a_flag_file_switches_speculation_off_and_on_while_the_program_runs(
    models: Models, telemetry: Telemetry, tmp_path: Path
) -> None:
    """Its first line counts; without the file speculation is on, and what the program itself switches counts more."""
    flag = tmp_path / "speculation"
    (tmp_path / "policy.toml").write_text('mode = "enforce"\nflag_file = "speculation"\n')
    with guarded(tmp_path / "policy.toml") as guard:
        states = ["on"]
        for text, state in (("off\n", "off"), ("on\n", "on"), ("off", "off"), (None, "on")):
            flag.unlink() if text is None else flag.write_text(text)
            wait_for(lambda: len(transitions(telemetry)) == len(states))
            models.run(models.draft)
            states.append(state)
        guard.switch(False)
        models.run(models.draft)
    reasons = [dict(span.attributes or {}).get(Attr.SPECDECODE_FALLBACK_REASON) for span in telemetry.spans()]
    assert [reason == "feature_flag" for reason in reasons] == [True, False, True, False, True]


# Planned in code, with a draft that can be let go of


def unloads(**more: Any) -> Policy:
    """A policy that goes down the ladder by windows of rounds, and unloads at the first canary that fails."""
    made = policy(ALWAYS, action="down", cool_down=0.01, **more)
    triggers = {**made.triggers, "quality_canary": Trigger(above=1, action="unload")}
    return Policy(**{**{key: getattr(made, key) for key in made.__struct_fields__}, "triggers": triggers})


def in_code(guard: RunningGuard, models: Models, drafts: Any) -> int | None:
    """Make a request by a plan that is asked for in code; return its draft length."""
    with guard.plan(engine="mlx", model="target", draft_length=K, tenant="acme") as plan:
        models.run(drafts.get(plan))
    length: int | None = plan.draft_length
    return length


def test_a_draft_is_replaced_by_the_lighter_one_and_then_let_go_of(models: Models, telemetry: Telemetry) -> None:
    """Its memory is free then, nothing loads it again under pressure, and spans say what was asked for."""
    loads: list[str] = []
    size = mx.zeros((1 << 20,)).nbytes

    def loading(name: str, weight: int) -> Callable[[], Any]:
        def loaded() -> Any:
            loads.append(name)
            draft = load("draft-kd" if name == "draft" else "draft-weak")
            draft.ballast = mx.ones((weight << 20,))
            mx.eval(draft.ballast)
            return draft

        return loaded

    with guarded(unloads()) as guard:
        drafts = guard.drafts(loading("draft", 8), loading("lighter", 2))
        before = mx.get_active_memory()
        in_code(guard, models, drafts)
        assert mx.get_active_memory() > before + 7 * size

        def on_rung(name: str) -> bool:
            return any(each["rung"] == name for each in transitions(telemetry))

        run_until(lambda: on_rung("lighter"), lambda: in_code(guard, models, drafts), 60)
        in_code(guard, models, drafts)
        assert loads == ["draft", "lighter"]
        assert mx.get_active_memory() < before + 4 * size
        guard.canary(False)
        assert transitions(telemetry)[-1]["rung"] == "unloaded"
        assert mx.get_active_memory() < before + size
        telemetry.clear()
        assert {in_code(guard, models, drafts) for _ in range(20)} == {0}
        assert loads == ["draft", "lighter"]
        assert set(paths(telemetry)) == {("autoregressive", "fallback", "quality_canary", 0)}
        found = dict(telemetry.spans()[0].attributes or {})
        assert found[Attr.SPECDECODE_REQUESTED_MODE] == "speculative"
        assert found[Attr.SPECDECODE_METHOD] == "draft_model"
        assert violations(telemetry) == []


def test_requests_that_leave_their_draft_away_by_the_plan_are_the_baseline(
    models: Models, telemetry: Telemetry
) -> None:
    """The control cohort of a program that asks for plans in code."""
    control = Baseline(share=0.5, most_share=0.5, requests=3)
    with guarded(policy(0.01, baseline=control)) as guard:
        drafts = guard.drafts(lambda: models.draft)
        for _ in range(12):
            in_code(guard, models, drafts)
        found = paths(telemetry)
        assert found["autoregressive", "control", "control", 0] == 6
        assert found["speculative", "normal", None, K] == 6
        assert latest(telemetry, "specdecode.guard.scopes_without_baseline") == {None: 0}
        assert violations(telemetry) == []


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


# Beginning and ending


def test_without_the_guard_all_is_as_before(models: Models, telemetry: Telemetry) -> None:
    """Requests run as asked, its thread is gone, and telemetry shows none."""
    with guarded(policy(ALWAYS)):
        opens(models, telemetry)
        assert telemetry.points("specdecode.guard.scopes")
    assert planner() is None
    assert running_guard() is None
    wait_for(lambda: not any(thread.name == "otel-specdecode-guard" for thread in threading.enumerate()))
    assert telemetry.points("specdecode.guard.scopes") == []
    telemetry.clear()
    models.run(models.draft)
    assert set(paths(telemetry)) == {("speculative", "normal", None, K)}


def test_a_second_guard_takes_the_place_of_the_first_unless_it_cannot_run(tmp_path: Path) -> None:
    """A policy that cannot be used leaves the one that runs alone."""
    with guarded(policy()):
        second = start_guard(policy(0.2))
        assert running_guard() is second
        (tmp_path / "baseline.json").write_text("{}")
        bad = Policy(baseline=Baseline(source="file", file=str(tmp_path / "baseline.json")))
        with pytest.raises(BaselineError, match=r"baseline\.json"):
            start_guard(bad)
        assert running_guard() is second
        assert planner() is not None
        second.close()


def test_engines_that_are_instrumented_no_more_run_as_asked(models: Models) -> None:
    """What is in flight ends as it began; instrumented again, requests are planned again."""
    with guarded(policy(ALWAYS)):
        with capture() as telemetry:
            plain = models.run(models.draft)
            opens(models, telemetry)
            flying = models.stream(models.draft)
            begun = [int(next(flying).token)]
        assert [*begun, *(int(each.token) for each in flying)] == models.run()
        assert models.run(models.draft) == plain
        with capture() as telemetry:
            models.run(models.draft)
            assert set(paths(telemetry)) == {("autoregressive", "fallback", "accept_rate", 0)}


def test_a_guard_that_sees_nothing_says_so_once(models: Models, caplog: pytest.LogCaptureFixture) -> None:
    """Without an SDK nothing is recorded, so there is nothing to decide by."""
    otel_specdecode.instrument(tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider())
    try:
        models.run(models.draft)
        assert "the guard" not in caplog.text
        with guarded(policy(ALWAYS)):
            models.run(models.draft)
            models.run(models.draft)
    finally:
        otel_specdecode.uninstrument()
    assert caplog.text.count("the guard sees no request") == 1


# By the environment


def test_a_policy_that_cannot_be_used_stops_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its file and line."""
    (tmp_path / "policy.toml").write_text('mode = "enforce"\n\n[windows]\nround = 3\n')
    monkeypatch.setenv(GUARD_POLICY, str(tmp_path / "policy.toml"))
    with pytest.raises(SystemExit) as stopped:
        start_guard_from_environment()
    assert stopped.value.code == 2
    assert f"{tmp_path / 'policy.toml'}:4: [windows] has no key round" in capsys.readouterr().err
    assert planner() is None


def test_a_policy_may_say_that_the_program_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, models: Models
) -> None:
    """The log says so, without folders, and a metric, until a guard runs."""
    (tmp_path / "policy.toml").write_text('on_error = "disable"\n[windows]\nround = 3\n')
    monkeypatch.setenv(GUARD_POLICY, str(tmp_path / "policy.toml"))
    try:
        with caplog.at_level(logging.WARNING), capture() as telemetry:
            models.run(models.draft)
            assert set(paths(telemetry)) == {("speculative", "normal", None, K)}
            assert latest(telemetry, "specdecode.guard.disabled") == {None: 1}
            assert violations(telemetry) == []
            with guarded(policy()):
                assert telemetry.points("specdecode.guard.disabled") == []
    finally:
        show_guard(None)
    assert "there is no guard" in caplog.text
    assert "policy.toml:3: [windows] has no key round" in caplog.text
    assert str(tmp_path) not in caplog.text


WITHOUT_MSGSPEC = """
import sys
sys.modules["msgspec"] = None
import otel_specdecode
otel_specdecode.instrument()
print("goes on")
"""


@pytest.mark.parametrize(("on_error", "code"), [("refuse", 2), ("disable", 0)])
def test_a_program_without_the_extra_is_told_which(on_error: str, code: int, tmp_path: Path) -> None:
    """As of any policy that cannot be used."""
    (tmp_path / "policy.toml").write_text(f'on_error = "{on_error}"\n')
    variables = {**os.environ, GUARD_POLICY: str(tmp_path / "policy.toml")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MSGSPEC], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code
    assert 'pip install "otel-specdecode[guard]"' in done.stderr
    assert ("goes on" in done.stdout) == (code == 0)
