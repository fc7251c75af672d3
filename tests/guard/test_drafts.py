"""Drafts that are loaded when they are needed and let go of when the guard says so."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from otel_specdecode.generation.plan import Plan
from otel_specdecode.guard.drafts import Drafts
from tests.guard.simulated import Clock
from tests.programs import run_program


class Draft:
    """What a program loads."""


AS_ASKED, LIGHTER, NONE = Plan(), Plan(2, lighter=True), Plan(0, "fallback", "accept_rate")


def test_a_draft_is_loaded_once_and_only_where_a_plan_lets_it_speculate() -> None:
    drafts = Drafts(Draft)
    assert drafts.get(NONE) is None
    assert drafts.get(AS_ASKED) is drafts.get(Plan(3))


def test_of_two_drafts_one_is_held() -> None:
    drafts = Drafts(Draft, Draft)
    heavy = drafts.get(AS_ASKED)
    assert heavy is not None
    seen = weakref.ref(heavy)
    del heavy
    assert drafts.get(LIGHTER) is drafts.get(LIGHTER)
    gc.collect()
    assert seen() is None


def test_without_a_lighter_draft_the_one_goes_on() -> None:
    drafts = Drafts(Draft)
    assert drafts.get(AS_ASKED) is drafts.get(LIGHTER)


def test_a_draft_that_is_let_go_of_is_free_before_the_allocator_is_asked_and_loaded_anew_later() -> None:
    free: list[bool] = []
    drafts = Drafts(Draft, freed=lambda: free.append(seen() is None))
    draft = drafts.get(AS_ASKED)
    assert draft is not None
    seen = weakref.ref(draft)
    del draft
    drafts.unload()
    assert free == [True]
    assert drafts.get(AS_ASKED) is not None


def test_a_plan_of_before_does_not_load_again_what_was_let_go_of_since() -> None:
    """Its request runs without then, and says why; a draft that is there it may have."""
    decided: list[tuple[int, str | None]] = [(0, None)]
    loads: list[Draft] = []

    def load() -> Draft:
        loads.append(Draft())
        return loads[-1]

    drafts = Drafts(load, unloaded=lambda: decided[-1])
    before, other = Plan(unloads=0), Plan(unloads=0)
    assert drafts.get(Plan(unloads=0)) is loads[0]
    decided.append((1, "memory_pressure"))
    assert drafts.get(before) is loads[0]
    drafts.unload()
    assert drafts.get(before) is None
    assert (before.autoregressive, before.cohort, before.fallback_reason) == (True, "fallback", "memory_pressure")
    assert drafts.get(Plan(unloads=1)) is loads[1]
    assert drafts.get(other) is loads[1]


def test_drafts_that_are_both_in_use_are_both_held() -> None:
    clock, loads = Clock(), []

    def loading(name: str) -> Any:
        def load() -> str:
            loads.append(name)
            return name

        return load

    drafts = Drafts(loading("heavy"), loading("lighter"), clock=clock)
    for _ in range(20):
        clock.seconds += 1
        assert (drafts.get(LIGHTER), drafts.get(AS_ASKED)) == ("lighter", "heavy")
    assert len(loads) == 3
    clock.seconds += 59
    drafts.get(LIGHTER)
    clock.seconds += 59
    drafts.get(AS_ASKED)
    assert len(loads) == 3


def test_of_two_drafts_in_use_the_one_that_nobody_asks_for_any_more_is_let_go_of() -> None:
    clock, freed = Clock(), []
    drafts = Drafts(Draft, Draft, clock=clock, freed=lambda: freed.append(seen() is None))
    for plan in (AS_ASKED, LIGHTER, AS_ASKED):
        heavy = drafts.get(plan)
    assert heavy is not None
    seen = weakref.ref(heavy)
    del heavy
    freed.clear()
    for _ in range(12):
        clock.seconds += 5
        drafts.get(LIGHTER)
    assert not freed
    clock.seconds += 5
    drafts.get(LIGHTER)
    assert freed == [True]
    drafts.get(LIGHTER)
    assert freed == [True]


def test_memory_that_cannot_be_given_back_is_told_and_the_request_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def freed() -> None:
        raise OSError("secret")

    drafts = Drafts(Draft, Draft, freed=freed)
    assert drafts.get(AS_ASKED) is not None
    assert drafts.get(LIGHTER) is not None
    assert "could not be given back (OSError)" in caplog.text
    assert "secret" not in caplog.text


class Slow:
    """A draft that is loaded until somebody says so, on a thread of its own."""

    def __init__(self, decided: list[tuple[int, str | None]]) -> None:
        self.begun, self.ends = threading.Event(), threading.Event()
        self.freed: list[bool] = []
        self.seen: weakref.ref[Draft] | None = None
        self.drafts = Drafts(self.load, freed=self.free, unloaded=lambda: decided[-1])
        self.got: list[bool] = []

    def load(self) -> Draft:
        draft = Draft()
        self.seen = weakref.ref(draft)
        self.begun.set()
        assert self.ends.wait(30)
        return draft

    def free(self) -> None:
        self.freed.append(self.seen is not None and self.seen() is None)

    def get(self, plan: Plan) -> threading.Thread:
        thread = threading.Thread(target=lambda: self.got.append(self.drafts.get(plan) is not None))
        thread.start()
        assert self.begun.wait(30)
        return thread


@pytest.mark.parametrize("unloads", [0, 1, None], ids=["planned before", "planned since", "counted by nobody"])
def test_nobody_who_unloads_waits_for_a_draft_that_is_loaded_and_it_goes_when_it_is(unloads: int | None) -> None:
    decided: list[tuple[int, str | None]] = [(unloads or 0, "memory_pressure")]
    slow, plan = Slow(decided), Plan(unloads=unloads)
    getting = slow.get(plan)
    decided.append((1, "memory_pressure"))
    unloading = threading.Thread(target=slow.drafts.unload)
    unloading.start()
    unloading.join(30)
    assert not unloading.is_alive()
    slow.ends.set()
    getting.join(30)
    assert slow.got == [unloads != 0]
    assert (plan.fallback_reason == "memory_pressure") is (unloads == 0)
    assert slow.freed == ([False, True] if unloads == 0 else [False])
    assert slow.seen is not None
    gc.collect()
    assert slow.seen() is None


def test_the_child_of_a_fork_in_the_middle_of_a_load_loads_for_itself() -> None:
    told = run_program(
        """
    import os, threading
    from otel_specdecode.generation.plan import Plan
    from otel_specdecode.guard.drafts import Drafts
    begun, ends, parent = threading.Event(), threading.Event(), os.getpid()
    def load():
        begun.set()
        if os.getpid() == parent:
            assert ends.wait(30)
        return os.getpid()
    drafts = Drafts(load)
    loading = threading.Thread(target=lambda: drafts.get(Plan()))
    loading.start()
    assert begun.wait(30)
    child = os.fork()
    if not child:
        got = []
        trying = threading.Thread(target=lambda: got.append(drafts.get(Plan())), daemon=True)
        trying.start()
        trying.join(10)
        os._exit(0 if got == [os.getpid()] else 1)
    failed = os.waitpid(child, 0)[1]
    ends.set()
    loading.join(30)
    print(failed, drafts.get(Plan()) == parent)
    """
    )
    assert told == "0 True\n"
