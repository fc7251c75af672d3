"""A running guard in a program: what it tells, how it begins and ends, and what the environment says."""

from __future__ import annotations

import contextvars
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")
pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider

import otel_specdecode
from otel_specdecode import guarded as guarded_module
from otel_specdecode.generation.plan import chosen, planner
from otel_specdecode.guard.baseline_file import BaselineError
from otel_specdecode.guard.policy import Baseline, Policy
from otel_specdecode.guard.toml_file import PolicyError
from otel_specdecode.guard_from_environment import GUARD_POLICY, start_guard_from_environment
from otel_specdecode.guarded import running_guard, start_guard
from otel_specdecode.telemetry import listener
from otel_specdecode.telemetry.guarding import show_guard
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from tests.guard.asked import ASK
from tests.guard.joined import (
    guarded,
    on_behalf_of,
    paths,
    policy,
    transitions,
    violations,
)
from tests.guard.pair import ALWAYS, K, Models, latest, opens, wait_for

pytestmark = [pytest.mark.mlx, pytest.mark.usefixtures("looks_often")]


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


def test_the_flag_counts_though_the_machine_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And a file that cannot be read leaves what it said last."""
    monkeypatch.setattr(guarded_module, "watch", None)
    flag = tmp_path / "speculation"
    (tmp_path / "policy.toml").write_text('mode = "enforce"\nflag_file = "speculation"\n')
    flag.write_text("off\n")
    with guarded(tmp_path / "policy.toml"):
        plans = planner()
        assert plans is not None
        assert plans.plan(ASK).fallback_reason == "feature_flag"
        flag.unlink()
        flag.mkdir()
        wait_for(lambda: "could not look at the feature flag" in caplog.text)
        assert plans.plan(ASK).fallback_reason == "feature_flag"
        flag.rmdir()
        wait_for(lambda: not plans.plan(ASK).autoregressive)
    assert "could not look at the machine" in caplog.text


def test_a_planned_block_may_end_in_another_context() -> None:
    """As that of a generator which somebody else closes."""
    with guarded(policy()) as guard:

        def answers() -> Iterator[bool]:
            with guard.plan(engine="mlx", model="target", draft_length=K) as plan:
                yield plan.autoregressive

        begun = answers()
        assert not contextvars.copy_context().run(next, begun)
        begun.close()  # type: ignore[attr-defined]
        assert chosen() is None
        begun = answers()
        next(begun)
        assert chosen() is not None
        contextvars.copy_context().run(begun.close)  # type: ignore[attr-defined]
        assert chosen() is None


def test_planned_blocks_may_end_in_any_order() -> None:
    """As those of two readers who take turns; no plan outlives its block."""
    with guarded(policy()) as guard:

        def answers(session: str) -> Iterator[None]:
            with guard.plan(engine="mlx", model="target", draft_length=K, session=session):
                yield

        one, other = answers("1"), answers("2")
        next(one)
        next(other)
        assert list(one) == []
        plan = chosen()
        assert plan is not None
        assert plan.who == (None, "2")
        assert list(other) == []
        assert chosen() is None


def test_threads_that_share_a_plan_end_each_its_own_block() -> None:
    left = []
    with guarded(policy()) as guard, ThreadPoolExecutor(1) as thread:
        planned = guard.plan(engine="mlx", model="target", draft_length=K)
        entered, leave = threading.Event(), threading.Event()

        def block() -> None:
            with planned:
                entered.set()
                assert leave.wait(20)
            left.append(chosen())

        running = thread.submit(block)
        assert entered.wait(20)
        with planned as plan:
            leave.set()
            running.result()
            assert chosen() is plan
        assert left == [chosen()] == [None]


def test_a_program_that_asks_a_closed_guard_runs_as_whoever_plans_now_decides() -> None:
    """Nobody learns what comes of its own decisions any more."""
    with guarded(policy()) as first:
        first.switch(False)
        assert first.plan(engine="mlx", model="target", draft_length=K).plan.autoregressive
        with guarded(policy()) as second:
            assert not first.plan(engine="mlx", model="target", draft_length=K).plan.autoregressive
            second.switch(False)
            assert first.plan(engine="mlx", model="target", draft_length=K).plan.autoregressive
    assert not first.plan(engine="mlx", model="target", draft_length=K).plan.autoregressive


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


@pytest.mark.parametrize("what", ["a pipe", "no end"])
def test_a_policy_that_is_no_file_stops_the_program_at_once(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipe" if what == "a pipe" else Path("/dev/zero")
    if what == "a pipe":
        os.mkfifo(path)
    monkeypatch.setenv(GUARD_POLICY, str(path))
    with pytest.raises(SystemExit) as stopped:
        start_guard_from_environment()
    assert stopped.value.code == 2
    assert f"{path}:1: this is no file: name a policy file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['\ufeffon_error = "disable"\n', "\"on_error\" = 'disable'\nb = 1\n"])
def test_however_it_is_written_that_the_program_goes_on_it_does(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv(GUARD_POLICY, str(tmp_path / "policy.toml"))
    try:
        start_guard_from_environment()
    finally:
        show_guard(None)
    assert running_guard() is None


@pytest.mark.parametrize(("said", "on"), [("False", False), ("0", False), ("no", False), ("yes", True), ("of", False)])
def test_the_environment_says_on_or_off_or_leaves_it_to_the_flag_file(
    said: str, on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(guarded_module.SPECULATION, said)
    (tmp_path / "speculation").write_text("off\n")
    (tmp_path / "policy.toml").write_text('mode = "enforce"\nflag_file = "speculation"\n[baseline]\nshare = 0\n')
    with guarded(tmp_path / "policy.toml"):
        plans = planner()
        assert plans is not None
        assert plans.plan(ASK).autoregressive != on
    assert ("says neither on nor off" in caplog.text) == (said == "of")


def test_a_misspelt_mode_in_code_runs_no_guard() -> None:
    mode: Any = "Observe_only"
    with pytest.raises(PolicyError, match="did you mean observe_only"):
        start_guard(Policy(mode=mode))
    assert running_guard() is None


def test_a_name_that_is_no_text_fails_no_request() -> None:
    class Unnamed:
        def __str__(self) -> str:
            raise RuntimeError

    name: Any = Unnamed()
    with guarded(policy()) as guard:
        planned = guard.plan(engine="mlx", model=name, draft_length=K, tenant=name, session=name)
    assert planned.plan.who == (None, None)
