"""The state machine: it does what a second, plain writing of the rules does, trips and recovers as each rule says."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import to_builtins

from otel_specdecode.guard.breaker import Breaker, Change, Kind
from otel_specdecode.guard.ladder import Rung, rungs_of
from otel_specdecode.guard.policy import OF_FAILURES, OF_REQUESTS, OF_ROUNDS, OF_THE_MACHINE, Policy, Trigger
from otel_specdecode.guard.windows import Closed
from tests.guard.reference import Reference, Rule, rules_of

POLICY = Policy(mode="enforce")
LENGTH = 4
LASTED = 5.0
"""Seconds from the first to the last of a window."""
TRIGGERS = to_builtins(POLICY)["triggers"]
RULES = {each.name: each for each in rules_of(TRIGGERS, LENGTH)}
KINDS: dict[Kind, frozenset[Any]] = {
    "rounds": OF_ROUNDS,
    "requests": OF_REQUESTS,
    "failures": OF_FAILURES,
    "machine": OF_THE_MACHINE,
}


def rungs(*, unloads: bool = False, lighter: bool = False) -> tuple[Rung, ...]:
    return rungs_of(LENGTH, POLICY.ladder, unloads=unloads, lighter=lighter)


def a_breaker(*, unloads: bool = False) -> Breaker:
    return Breaker(POLICY, rungs(unloads=unloads), 0.0)


def closed(**values: float) -> Closed:
    return Closed(values, 200, LASTED, {LENGTH: 100})  # type: ignore[arg-type]


def kind_of(rule: Rule) -> Kind:
    return next(kind for kind, measures in KINDS.items() if rule.measure in measures)


def at_bound(rule: Rule, by: float) -> float:
    """A value that breaks a rule by a share of its bound, or keeps it by as much if that is negative."""
    if rule.measure in OF_FAILURES:
        return rule.bound if by > 0 else 0.0
    return rule.bound * (1 + by if rule.above else 1 - by)


NUMBERS = st.one_of(
    st.floats(0, 2),
    st.sampled_from([0.0, 1.0, 2.0, 3.0, 60.0, 61.0, 1.7e9, math.nan, math.inf, -math.inf, 1e300, -5.0]),
    st.builds(at_bound, st.sampled_from(list(RULES.values())), st.sampled_from([-0.06, -0.04, -1e-9, 0.0, 1e-9, 0.3])),
)


class AsTheReference(RuleBasedStateMachine):
    """A breaker and the reference get the same windows."""

    @initialize(unloads=st.booleans())
    def begin(self, unloads: bool) -> None:
        self.now = 0.0
        ladder = rungs(unloads=unloads)
        self.breaker = Breaker(POLICY, ladder, 0.0)
        self.ladder = ladder
        names = [rung.name for rung in ladder]
        self.reference = Reference(names, names.index("autoregressive"), list(RULES.values()))

    @rule(seconds=st.one_of(st.floats(0, 400), st.sampled_from([0.0, 120.0, 300.0, 1200.0, 86_400.0 * 3])))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(kind=st.sampled_from(list(KINDS)), data=st.data(), times=st.integers(1, 4))
    def windows(self, kind: Kind, data: st.DataObject, times: int) -> None:
        values = data.draw(st.dictionaries(st.sampled_from(sorted(KINDS[kind])), NUMBERS))
        for _ in range(times):
            change = self.breaker.window(kind, closed(**values), self.now)
            wanted = self.reference.window(kind, values, self.now, LASTED)
            assert (None if change is None else change.trigger) == wanted

    @rule(kind=st.sampled_from(list(KINDS)), times=st.integers(1, 3), seconds=st.sampled_from([5.0, 150.0, 400.0]))
    def good_windows(self, kind: Kind, times: int, seconds: float) -> None:
        values = {each.measure: at_bound(each, -0.5) for each in RULES.values() if each.measure in KINDS[kind]}
        for _ in range(times):
            self.now += seconds
            change = self.breaker.window(kind, closed(**values), self.now)
            wanted = self.reference.window(kind, values, self.now, LASTED)
            assert (None if change is None else change.trigger) == wanted

    @rule(name=st.sampled_from(sorted(RULES)), times=st.integers(1, 3))
    def break_one(self, name: str, times: int) -> None:
        rule = RULES[name]
        values = {rule.measure: at_bound(rule, 0.1)}
        for _ in range(times):
            change = self.breaker.window(kind_of(rule), closed(**values), self.now)
            wanted = self.reference.window(kind_of(rule), values, self.now, LASTED)
            assert (None if change is None else change.trigger) == wanted

    @rule()
    def tick(self) -> None:
        change = self.breaker.tick(self.now)
        wanted = self.reference.tick(self.now)
        assert (None if change is None else change.trigger) == wanted

    @rule()
    def restart(self) -> None:
        """What another breaker makes of a saved one is the same again, probes aside: they begin anew."""
        saved = self.breaker.saved(self.now)
        other = Breaker(POLICY, self.ladder, self.now)
        other.restore(saved, self.now)
        assert {**other.saved(self.now), "state": None} == {**saved, "state": None}
        assert other.state == ("open" if self.breaker.state == "probing" else self.breaker.state)
        assert (other.rung, other.name) == (self.breaker.rung, self.breaker.name)

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "breaker"):
            mine, theirs = self.breaker, self.reference
            assert (mine.state, mine.rung.name) == (theirs.state, theirs.rungs[theirs.place])
            assert mine.limits_streams == theirs.streams
            assert (mine.reason is None) == (mine.state == "closed")
            assert (mine.rung.draft_length == 0) == (mine.state in ("open", "probing"))


AsTheReference.TestCase.settings = settings(stateful_step_count=60)
TestAsTheReference = AsTheReference.TestCase


@pytest.mark.parametrize("name", RULES)
def test_a_trigger_trips_in_the_window_that_its_rule_says_and_not_in_the_one_before(name: str) -> None:
    rule, breaker = RULES[name], a_breaker()
    others = {"accept_rate_critical": "accept_rate"}
    if name in others or name.endswith("_lost"):
        # The gentler rule on the same measure goes a rung down meanwhile; here it is only about this one.
        kept = {each: TRIGGERS[each] for each in (name,)}
        breaker = Breaker(Policy(triggers={each: Trigger(**table) for each, table in kept.items()}), rungs(), 0.0)
    broken = closed(**{rule.measure: at_bound(rule, 0.01)})
    for _ in range(rule.windows - 1):
        assert breaker.window(kind_of(rule), broken, 1.0) is None
    change = breaker.window(kind_of(rule), broken, 1.0 + rule.seconds)
    assert isinstance(change, Change)
    assert (change.trigger, change.before, change.value) == (name, "closed", broken.values[rule.measure])  # type: ignore[index]
    assert (change.threshold, change.samples, change.window_seconds) == (rule.bound, 200, LASTED)
    ends = {"down": "k=3", "streams": "streams", "autoregressive": "autoregressive", "unload": "autoregressive"}
    assert (change.rung_before, change.rung_after) == ("as_asked", ends[rule.action])


@pytest.mark.parametrize("name", RULES)
def test_one_good_window_between_broken_ones_begins_the_count_anew(name: str) -> None:
    rule, breaker = RULES[name], a_breaker()
    broken, good = (closed(**{rule.measure: at_bound(rule, by)}) for by in (0.001, -0.5))
    for _ in range(10):
        for _ in range(rule.windows - 1):
            change = breaker.window(kind_of(rule), broken, 1.0)
            assert change is None or change.trigger != name
        breaker.window(kind_of(rule), good, 1.0)


LONG = Policy(triggers={"queue": Trigger(above=2.0, windows=2, seconds=300, action="down")})
SLOW, QUICK = closed(queue=3.0), closed(queue=1.0)


@pytest.mark.parametrize(("last", "trips"), [(394.9, False), (395.0, True)])
def test_a_trigger_that_says_seconds_must_be_broken_for_so_long(last: float, trips: bool) -> None:
    """From the beginning of the first window, which is five seconds before its end."""
    breaker = Breaker(LONG, rungs(), 0.0)
    for now in (100.0, 110.0, 200.0):
        assert breaker.window("requests", SLOW, now) is None
    assert (breaker.window("requests", SLOW, last) is not None) is trips


def test_seconds_do_without_no_window() -> None:
    breaker = Breaker(LONG, rungs(), 0.0)
    assert breaker.window("requests", Closed({"queue": 3.0}, 20, 1000.0), 1000.0) is None
    assert breaker.window("requests", SLOW, 1010.0) is not None


def test_a_good_window_begins_the_seconds_anew_and_one_that_does_not_know_does_not() -> None:
    breaker = Breaker(LONG, rungs(), 0.0)
    breaker.window("requests", SLOW, 100.0)
    breaker.window("requests", QUICK, 200.0)
    breaker.window("requests", SLOW, 300.0)
    assert breaker.window("requests", SLOW, 500.0) is None
    breaker.window("requests", closed(), 550.0)
    assert breaker.window("requests", SLOW, 600.0) is not None


def test_a_probe_need_not_be_bad_for_long() -> None:
    policy = Policy(triggers={**LONG.triggers, "verifier_error": Trigger(above=2)})
    breaker = Breaker(policy, rungs(), 0.0)
    breaker.window("failures", closed(verifier_error=2.0), 0.0)
    breaker.tick(301.0)
    assert breaker.state == "probing"
    breaker.window("requests", SLOW, 310.0)
    assert breaker.state == "open"


@pytest.mark.parametrize("name", RULES)
def test_a_value_at_its_bound_trips_nothing_but_failures(name: str) -> None:
    rule, breaker = RULES[name], a_breaker()
    changes = [breaker.window(kind_of(rule), closed(**{rule.measure: rule.bound}), 1.0) for _ in range(5)]
    tripped = any(change is not None and change.trigger == name for change in changes)
    assert tripped is (rule.measure in OF_FAILURES)


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", RULES)
def test_what_is_not_known_trips_nothing(name: str, unknown: float | None) -> None:
    rule, breaker = RULES[name], a_breaker()
    values = {} if unknown is None else {rule.measure: unknown}
    assert not any(breaker.window(kind_of(rule), closed(**values), float(now)) for now in range(20))


def all_good(breaker: Breaker, kind: Kind, now: float) -> Change | None:
    values = {each.measure: at_bound(each, -0.5) for each in RULES.values() if each.measure in KINDS[kind]}
    return breaker.window(kind, closed(**values), now)


@pytest.mark.parametrize("name", RULES)
def test_speculation_comes_back_from_every_trigger(name: str) -> None:
    """Broken once; then good windows a minute. It is as asked again within the hour, and goes up rung by rung."""
    rule, breaker = RULES[name], a_breaker(unloads=True)
    for _ in range(rule.windows):
        broken = closed(**{rule.measure: at_bound(rule, 0.05)})
        breaker.window(kind_of(rule), broken._replace(seconds=rule.seconds), 0.0)
    assert breaker.state != "closed"
    now, seen = 0.0, []
    while breaker.state != "closed":
        now += 60.0
        assert now < 3600.0
        changes = [breaker.tick(now), all_good(breaker, kind_of(rule), now) if probes(breaker) else None]
        seen += [change.rung_after for change in changes if change is not None]
    assert seen[-1] == "as_asked"
    assert breaker.reason is None


def probes(breaker: Breaker) -> bool:
    """Whether there are requests that could say something: of the machine there always are."""
    return breaker.state != "open" or breaker._cause in ("machine", "failures")


def test_a_window_that_does_not_tell_what_tripped_is_no_reason_to_go_back() -> None:
    breaker = a_breaker()
    for _ in range(2):
        breaker.window("rounds", closed(break_even=0.5), 0.0)
    breaker.tick(300.0)
    assert breaker.state == "probing"
    for _ in range(20):
        assert breaker.window("rounds", closed(accept_rate=0.9), 301.0) is None


def test_a_failed_canary_is_no_reason_to_go_back() -> None:
    breaker = a_breaker()
    breaker.window("failures", closed(quality_canary=2.0), 0.0)
    for now in range(1000, 2000, 60):
        value = float(now % 120 == 40)
        assert breaker.window("failures", closed(quality_canary=value), float(now)) is None, now


def test_each_probe_that_fails_doubles_the_cool_down_up_to_four_hours() -> None:
    breaker, now, waits = a_breaker(), 0.0, []
    for _ in range(2):
        breaker.window("rounds", closed(break_even=0.5), now)
    for _ in range(9):
        began = now
        while breaker.tick(now) is None:
            now += 1.0
        waits.append(now - began)
        assert breaker.window("rounds", closed(break_even=0.5), now) is not None
    assert waits == [300, 600, 1200, 2400, 4800, 9600, 14400, 14400, 14400]


def test_accept_rate_yields_to_rounds_that_are_known_to_pay() -> None:
    breaker = a_breaker()
    for _ in range(50):
        assert breaker.window("rounds", closed(accept_rate=0.28, all_rejected=0.9, break_even=1.01), 1.0) is None
    assert breaker.window("rounds", closed(accept_rate=0.28, all_rejected=0.9), 1.0) is not None


def test_a_good_accept_rate_does_not_help_rounds_that_do_not_pay() -> None:
    breaker = a_breaker()
    breaker.window("rounds", closed(accept_rate=0.7, break_even=0.98), 1.0)
    change = breaker.window("rounds", closed(accept_rate=0.7, break_even=0.98), 2.0)
    assert change is not None
    assert change.trigger == "break_even"


def test_a_window_of_several_draft_lengths_is_held_against_the_bounds_of_each() -> None:
    """At k = 1 the bound is .68, at k = 4 it is .42: half and half, .55."""
    for rate, trips in ((0.551, False), (0.549, True)):
        window = Closed({"accept_rate": rate}, 200, 5.0, {1: 50, 4: 50})
        assert (a_breaker().window("rounds", window, 1.0) is not None) is trips


def test_a_draft_longer_than_any_with_a_bound_is_held_to_that_of_the_longest() -> None:
    policy = Policy(triggers={"accept_rate": Trigger(below={"1": 0.6, "2": 0.5}, windows=1, action="autoregressive")})
    for length in (2, 3, 12, 40):
        closed = Closed({"accept_rate": 0.45}, 200, 5.0, {length: 10})
        change = Breaker(policy, rungs(), 0.0).window("rounds", closed, 1.0)
        assert change is not None, length
        assert change.threshold == 0.5


@pytest.mark.parametrize("lengths", [{}, {None: 10}, {4: 10, None: 1}, {0: 10}])
def test_an_unknown_draft_length_has_no_bound(lengths: dict[int | None, int]) -> None:
    assert a_breaker().window("rounds", Closed({"accept_rate": 0.01}, 200, 5.0, lengths), 1.0) is None


@pytest.mark.parametrize("length", [16, 17, 64])
def test_all_long_drafts_have_one_bound(length: int) -> None:
    assert a_breaker().window("rounds", Closed({"accept_rate": 0.01}, 200, 5.0, {length: 1}), 1.0) is not None


FLAPS_A_DAY = 30
"""The most that a breaker may change in a day of values within 2 % of a bound."""


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_values_that_wander_around_a_bound_do_not_make_it_flap(name: str, seed: int) -> None:
    """A window each half minute for a day, every value within 2 % of the bound."""
    rule, breaker, changes, chance = RULES[name], a_breaker(unloads=True), 0, random.Random(seed)
    for half_minute in range(2 * 60 * 24):
        now = half_minute * 30.0
        changes += breaker.tick(now) is not None
        if not probes(breaker):
            continue
        value = rule.bound * chance.uniform(0.98, 1.02)
        if rule.measure in OF_FAILURES:
            value = float(chance.randint(0, 2))
        changes += breaker.window(kind_of(rule), closed(**{rule.measure: value}), now) is not None
    assert changes <= FLAPS_A_DAY


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


@given(key=st.sampled_from(sorted(a_breaker().saved(0.0))), value=JSON, missing=st.booleans())
def test_what_was_not_saved_is_refused_and_changes_nothing(key: str, value: Any, missing: bool) -> None:
    breaker, saving = a_breaker(), a_breaker()
    saving.window("failures", closed(verifier_error=2.0), 0.0)
    saved: dict[str, Any] = {**saving.saved(50.0), key: value}
    if missing:
        del saved[key]
    before = breaker.saved(60.0)
    try:
        breaker.restore(saved, 60.0)
    except ValueError:
        assert breaker.saved(60.0) == before
        assert breaker.state == "closed"
    else:
        assert (breaker.rung.draft_length == 0) == (breaker.state == "open")


@pytest.mark.parametrize("nothing", [None, 3, "x", [], {}, {"state": []}, {"state": "closed"}])
def test_nothing_at_all_is_refused(nothing: Any) -> None:
    with pytest.raises(ValueError, match="saved state"):
        a_breaker().restore(nothing, 0.0)


def test_a_rung_that_is_not_there_is_the_next_one_below() -> None:
    saving = Breaker(POLICY, rungs(unloads=True), 0.0)
    saving.window("machine", closed(memory_pressure=90.0), 0.0)
    assert saving.name == "unloaded"
    breaker = a_breaker()
    breaker.restore(saving.saved(1.0), 0.0)
    assert (breaker.state, breaker.name, breaker.reason) == ("open", "autoregressive", "memory_pressure")


def test_a_longer_ladder_leaves_it_on_its_rung() -> None:
    breaker = a_breaker()
    breaker.window("rounds", closed(accept_rate=0.41), 0.0)
    assert breaker.name == "k=3"
    breaker.extend(rungs_of(8, POLICY.ladder, lighter=True, unloads=True))
    assert breaker.name == "k=3"
    breaker.window("machine", closed(memory_pressure=90.0), 1.0)
    assert breaker.name == "unloaded"


def test_rungs_are_those_below_what_is_asked_for() -> None:
    def names(asked: int | None, **more: bool) -> list[str]:
        return [rung.name for rung in rungs_of(asked, POLICY.ladder, **more)]

    assert names(4) == ["as_asked", "k=3", "k=2", "autoregressive"]
    assert names(1) == ["as_asked", "autoregressive"]
    assert names(None) == ["as_asked", "k=6", "k=4", "k=3", "k=2", "autoregressive"]
    assert names(3, lighter=True, unloads=True) == ["as_asked", "k=2", "lighter", "autoregressive", "unloaded"]
