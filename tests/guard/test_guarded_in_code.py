"""Requests that a program plans itself, with a draft that can be let go of, and what it tells its guard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")
pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

import mlx.core as mx

import otel_specdecode
from otel_specdecode.generation.plan import Plan
from otel_specdecode.guard.policy import Baseline, Budget, Policy, Trigger, Windows
from otel_specdecode.guarded import RunningGuard
from otel_specdecode.telemetry.names import Attr, Event
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.tiny_pair import PROMPTS
from tests.guard.joined import (
    guarded,
    on_behalf_of,
    paths,
    policy,
    run_until,
    transitions,
    violations,
)
from tests.guard.pair import ALWAYS, K, Models, latest, load, wait_for

pytestmark = [pytest.mark.mlx, pytest.mark.usefixtures("looks_often")]


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
        assert on_rung("unloaded")
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


def test_a_calibration_fills_the_baseline_without_the_draft(models: Models, telemetry: Telemetry) -> None:
    with guarded(policy(baseline=Baseline(requests=2, share=0.0, most_share=0.0))) as guard:
        guard.calibrate(lambda prompt: models.run(models.draft, prompt), PROMPTS[:2])
        models.run(models.draft)
        otel_specdecode.flush()
        assert latest(telemetry, "specdecode.guard.scopes_without_baseline") == {None: 0}
    assert paths(telemetry) == {
        ("autoregressive", "control", "control", 0): 2,
        ("speculative", "normal", None, K): 1,
    }


def test_a_scope_without_a_baseline_is_told_of_until_a_calibration(models: Models, telemetry: Telemetry) -> None:
    compares = Policy(
        mode="enforce",
        windows=Windows(requests=2),
        triggers={"speedup": Trigger(below=1e-6)},
        baseline=Baseline(requests=2, share=0.0, most_share=0.0),
    )

    def standings() -> list[Any]:
        told = telemetry.events(Event.SPECDECODE_GUARD_BASELINE)
        return [each.attributes[Attr.SPECDECODE_GUARD_BASELINE_STATE] for each in told]

    with guarded(compares) as guard:
        for _ in range(6):
            models.run(models.draft)
        assert standings() == ["missing"]
        guard.calibrate(lambda prompt: models.run(models.draft, prompt), PROMPTS[:2])
        for _ in range(6):
            models.run(models.draft)
        assert standings() == ["missing", "known"]
        assert violations(telemetry) == []


def test_results_of_canaries_are_read_from_a_file(models: Models, telemetry: Telemetry, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        'mode = "enforce"\ncanary_file = "canary"\n[triggers.quality_canary]\nabove = 2\n'
    )
    with guarded(tmp_path / "policy.toml"):
        models.run(models.draft)
        (tmp_path / "canary").write_text("pass\nfail\nfail\n")
        wait_for(lambda: bool(transitions(telemetry)))
        models.run(models.draft)
        assert latest(telemetry, "specdecode.canary.results", Attr.SPECDECODE_CANARY_OUTCOME) == {"pass": 1, "fail": 2}
    assert paths(telemetry)["autoregressive", "fallback", "quality_canary", 0] == 1


@pytest.mark.parametrize("named", ["in code", "by baggage", "as a number"])
def test_what_comes_of_a_planned_request_counts_for_whom_it_was_planned(
    named: str, models: Models, telemetry: Telemetry
) -> None:
    """Where its program names a tenant, that one; else that of its context."""
    tenant: Any = {"in code": "acme", "by baggage": None, "as a number": 7}[named]
    with guarded(policy(ALWAYS, by="tenant")) as guard, on_behalf_of(tenant="acme" if tenant is None else "other"):

        def request() -> None:
            with guard.plan(engine="mlx", model="target", draft_length=K, tenant=tenant):
                models.run(models.draft)

        run_until(lambda: bool(transitions(telemetry)), request, 10)
    (told,) = transitions(telemetry)
    assert (told["scope"], told["specdecode.tenant.id"]) == ("tenant", "7" if tenant == 7 else "acme")


def test_a_plan_that_no_call_ran_by_takes_no_stream(models: Models, telemetry: Telemetry) -> None:
    """Though its program may hold it for long."""
    one_at_once = Policy(
        mode="enforce", baseline=Baseline(share=0.0, most_share=0.0), budget=Budget(share_of_streams=0.4)
    )

    def plan(guard: RunningGuard, tenant: str) -> Any:
        return guard.plan(engine="mlx", model="target", draft_length=K, tenant=tenant)

    with guarded(one_at_once) as guard, plan(guard, "other"):
        with plan(guard, "acme") as first:
            assert plan(guard, "acme").plan.fallback_reason == "tenant_budget"
        assert not first.autoregressive
        assert plan(guard, "acme").plan.fallback_reason is None


def test_memory_of_a_draft_goes_back_to_the_system(models: Models, telemetry: Telemetry) -> None:
    """Each time, not only to the allocators of MLX and of the C library."""
    psutil = pytest.importorskip("psutil", reason="needs psutil")
    process, size = psutil.Process(), 40 * 4

    def loaded() -> Any:
        draft = load("draft-kd")
        draft.ballast = [mx.ones((1 << 20,)) for _ in range(40)]
        mx.eval(draft.ballast)
        return draft

    def resident() -> float:
        return float(process.memory_info().rss) / (1 << 20)

    with guarded(unloads()) as guard:
        drafts = guard.drafts(loaded)
        for _ in range(3):
            models.run(drafts.get(Plan()))
            held = resident()
            drafts.unload()
            assert resident() < held - 0.8 * size


def test_a_request_whose_draft_was_let_go_of_meanwhile_runs_without(models: Models, telemetry: Telemetry) -> None:
    """It was planned before; the draft is not loaded again for it, and its span says why."""
    loads: list[Any] = []

    def loading() -> Any:
        loads.append(models.draft)
        return models.draft

    with guarded(unloads()) as guard:
        drafts = guard.drafts(loading)
        planned = guard.plan(engine="mlx", model="target", draft_length=K)
        guard.canary(False)
        with planned as plan:
            models.run(drafts.get(plan))
    assert loads == []
    assert paths(telemetry) == {("autoregressive", "fallback", "quality_canary", 0): 1}
    assert violations(telemetry) == []
