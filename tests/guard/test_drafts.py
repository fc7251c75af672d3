"""Drafts that are loaded when they are needed and let go of when the guard says so."""

from __future__ import annotations

import gc
import weakref

from otel_specdecode.generation.plan import Plan
from otel_specdecode.guard.drafts import Drafts


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
