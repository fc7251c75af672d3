"""The state machine of one lane, or of the machine: windows in, changes out. Pure; the clock is the caller's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

from msgspec import UNSET

from otel_specdecode.generation.transition import State
from otel_specdecode.guard.ladder import Rung
from otel_specdecode.guard.policy import (
    MEANING,
    OF_FAILURES,
    OF_REQUESTS,
    OF_ROUNDS,
    OF_THE_MACHINE,
    YIELDING,
    Action,
    Measure,
    Policy,
    Trigger,
)
from otel_specdecode.guard.windows import Closed

Kind = Literal["rounds", "requests", "failures", "machine"]

_KINDS: Final[Mapping[Kind, frozenset[str]]] = {
    "rounds": OF_ROUNDS,
    "requests": OF_REQUESTS,
    "failures": OF_FAILURES,
    "machine": OF_THE_MACHINE,
}
_SEVERITY: Final[Mapping[Action, int]] = {"down": 0, "streams": 1, "autoregressive": 2, "unload": 3}
_REASONS: Final[Mapping[str, str]] = {"service_speedup": "speedup"}
_LONGEST = 16
_LASTING = 10
"""Dwells that a step up must have stood to have lasted."""

_KEYS: Final = ("state", "rung", "cause", "reason", "measure", "limits_streams")
_AGES: Final = ("cool_down", "dwell", "age")
_LONGEST_AGE = 1e9
_Measured = tuple["float | None", "float | None", int, float]

RECOVERED, PROBE = "recovered", "probe"
"""Triggers of the guard itself: nothing was broken for long enough; the cool-down is over."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a breaker did. The fields are those of a Transition."""

    before: State
    after: State
    rung_before: str
    rung_after: str
    trigger: str
    reason: str | None
    value: float | None = None
    threshold: float | None = None
    samples: int = 0
    window_seconds: float = 0.0


class _Tripped(NamedTuple):
    name: str
    action: Action
    measure: Measure
    value: float
    bound: float


class Breaker:
    """Decides on which rung requests run.

    A trigger that was broken in as many windows in a row, and for as long, as it says takes its action. Speculation
    comes back in steps: from none through probes at the shortest draft, after a cool-down that doubles with each probe
    that fails; from a rung to the one above after a dwell and some windows in which nothing was broken, with a margin.
    The dwell on the way up doubles with each step up that did not last. A window that does not tell a measure neither
    adds to its trigger's windows in a row nor ends them, and a way back needs windows that tell the measure that
    tripped.

    Attributes:
        state: Where it is.
        rung: The rung of requests that are decided now; of probes it is the one below which there is no speculation.
        limits_streams: Whether the number of speculative streams is limited.
        reason: Fallback reason of requests that it keeps from speculation, None where it keeps none.
        changes: Changes so far: what was decided at an earlier count was decided by another rung.
    """

    def __init__(self, policy: Policy, rungs: tuple[Rung, ...], now: float) -> None:
        """Begin with full speculation.

        Args:
            policy: The rules.
            rungs: From full speculation to none.
            now: Clock reading in seconds, which never goes back.
        """
        self.state: State = "closed"
        self.limits_streams = False
        self.reason: str | None = None
        self.changes = 0
        self._policy = policy
        self._triggers = {kind: _triggers_of(policy, measures) for kind, measures in _KINDS.items()}
        self._rungs = rungs
        self._stand_on(0)
        self._rows: dict[str, tuple[int, float]] = {}
        """Of each broken trigger its windows in a row, and when the first of them began."""
        self._cause: Kind = "rounds"
        self._measure: Measure | None = None
        self._good = 0
        self._good_since: float | None = None
        self._changed = now
        self._climbed: float | None = None
        self._cool_down = policy.probe.cool_down
        self._dwell = policy.probe.dwell

    @property
    def name(self) -> str:
        """The rung's name, with the limit of streams."""
        return "streams" if self.limits_streams and self._step == 0 else self.rung.name

    @property
    def probe_rung(self) -> Rung:
        """The rung that probes run on: the shortest draft."""
        return self._rungs[self._first_without() - 1]

    def extend(self, rungs: tuple[Rung, ...]) -> None:
        """Take a ladder with further rungs; it stays on the one it is on."""
        names = [rung.name for rung in rungs]
        if self.rung.name in names:
            self._rungs = rungs
            self._stand_on(names.index(self.rung.name))

    def window(self, kind: Kind, closed: Closed, now: float) -> Change | None:
        """Take a full window of what was decided by the rung of now.

        Args:
            kind: What it is of.
            closed: What it says.
            now: Clock reading in seconds.

        Returns:
            What is done about it.
        """
        tripped: list[_Tripped] = []
        held = True
        for name, measure, trigger in self._triggers[kind]:
            value = closed.values.get(measure)
            if value is None or not math.isfinite(value):
                continue
            bound = _bound(trigger.below if trigger.above is UNSET else trigger.above, closed)
            broken = _is_broken(trigger, measure, value, bound, closed)
            held = held and not broken and self._is_held(trigger, measure, value, bound, closed)
            if not broken:
                self._rows.pop(name, None)
                continue
            windows, since = self._rows.get(name, (0, now - closed.seconds))
            self._rows[name] = windows + 1, since
            is_long = windows + 1 >= trigger.windows and now - since >= trigger.seconds
            if is_long or self.state == "probing":
                tripped.append(_Tripped(name, trigger.action, measure, value, bound))
        if tripped:
            return self._trip(kind, max(tripped, key=lambda each: _SEVERITY[each.action]), closed, now)
        return self._keep(kind, closed, held, now)

    def tick(self, now: float) -> Change | None:
        """Begin to probe where the cool-down is over."""
        if self.state != "open" or now - self._changed < self._cool_down or self._cause == "machine":
            return None
        return self._go("probing", self._first_without(), PROBE, None, now, streams=self.limits_streams)

    def saved(self, now: float) -> dict[str, float | int | str | bool | None]:
        """Return what a restart must not forget."""
        return {
            "state": self.state,
            "rung": self.rung.name,
            "limits_streams": self.limits_streams,
            "reason": self.reason,
            "cause": self._cause,
            "measure": self._measure,
            "cool_down": self._cool_down,
            "dwell": self._dwell,
            "age": max(now - self._changed, 0.0),
        }

    def restore(self, saved: object, now: float) -> None:
        """Go on where a process before ended. Probes begin anew; a rung that is not there is the next one below.

        Raises:
            ValueError: It is nothing that saved() returned; nothing is changed.
        """
        known = _known(saved)
        probe = self._policy.probe
        longest = max(probe.longest_cool_down, probe.cool_down, probe.dwell)
        self._stand_on(self._nearest(known["rung"], speculates=known["state"] in ("closed", "limited")))
        self.state = "open" if known["state"] == "probing" else known["state"]
        self.limits_streams, self.reason = known["limits_streams"], known["reason"]
        self._cause, self._measure = known["cause"], known["measure"]
        self._cool_down = min(max(float(known["cool_down"]), probe.cool_down), longest)
        self._dwell = min(max(float(known["dwell"]), probe.dwell), longest)
        self._changed = now - float(known["age"])
        self._good, self._good_since, self._climbed = 0, None, None
        self._rows.clear()

    def _nearest(self, name: str, *, speculates: bool) -> int:
        """Return the step of a saved rung; of one that is not there, the lowest that speculates, or the first not."""
        names = [rung.name for rung in self._rungs]
        without = self._first_without()
        found = names.index(name) if name in names else without - speculates
        return min(found, without - 1) if speculates else max(found, without)

    def _is_held(self, trigger: Trigger, measure: Measure, value: float, bound: float, closed: Closed) -> bool:
        """Return whether a value keeps a trigger's bound with the margin that a way back needs."""
        if measure in OF_FAILURES:
            return value <= 0
        margin = self._policy.probe.hysteresis
        kept = bound * (1 + margin if trigger.above is UNSET else 1 - margin)
        return not _is_broken(trigger, measure, value, kept, closed, 1 + margin)

    def _trip(self, kind: Kind, worst: _Tripped, closed: Closed, now: float) -> Change | None:
        action, last, without = worst.action, len(self._rungs) - 1, self._first_without()
        if self.state in ("open", "probing") and action in ("down", "streams"):
            action = "autoregressive"
        gentle = action in ("down", "streams")
        self._good, self._good_since = 0, None
        if gentle and self.state != "closed" and now - self._changed < self._policy.probe.dwell:
            return None
        if self.state == "open" and self._step >= (last if action == "unload" else without):
            return None
        streams, step = self.limits_streams, self._step
        if action == "streams" and not streams:
            streams = True
        elif gentle:
            step = min(step + 1, without)
        else:
            step = last if action == "unload" else max(step, without)
        self._back_off(now)
        self._cause, self._measure = kind, worst.measure
        measured = (worst.value, worst.bound, closed.samples, closed.seconds)
        state: State = "open" if step >= without else "limited"
        reason = _REASONS.get(worst.measure, worst.measure)
        return self._go(state, step, worst.name, reason, now, measured, streams=streams)

    def _back_off(self, now: float) -> None:
        """A way back that did not last makes the next one slower; one that did makes it as fast as ever."""
        probe = self._policy.probe
        if self.state == "probing":
            self._cool_down = self._doubled(self._cool_down)
        elif self._climbed is not None:
            if now - self._climbed < _LASTING * self._dwell:
                self._dwell, self._cool_down = self._doubled(self._dwell), self._doubled(self._cool_down)
            else:
                self._dwell, self._cool_down = probe.dwell, probe.cool_down
        self._climbed = None

    def _doubled(self, seconds: float) -> float:
        return max(min(seconds * 2, self._policy.probe.longest_cool_down), seconds)

    def _keep(self, kind: Kind, closed: Closed, held: bool, now: float) -> Change | None:
        """Nothing tripped: speculation comes back, where it was long enough like that."""
        if self.state == "closed":
            return None
        if not held or closed.suspect:
            self._good, self._good_since = 0, None
            return None
        if kind != self._cause or (self._measure is not None and self._measure not in closed.values):
            return None
        self._good += 1
        self._good_since = now if self._good_since is None else self._good_since
        if kind == "machine":
            enough = now - self._good_since >= self._cool_down
        else:
            enough = self._good >= self._policy.probe.windows
        least = {"limited": self._dwell, "open": self._cool_down}.get(self.state, 0.0)
        if not enough or now - self._changed < least:
            return None
        return self._climb(now, (None, None, closed.samples, closed.seconds))

    def _climb(self, now: float, measured: _Measured) -> Change:
        without = self._first_without()
        step = without - 1 if self.state in ("open", "probing") else max(self._step - 1, 0)
        streams = self.limits_streams and self._step > 0
        self._climbed = now
        state: State = "limited" if step or streams else "closed"
        return self._go(state, step, RECOVERED, None, now, measured, streams=streams)

    def _go(
        self,
        state: State,
        step: int,
        trigger: str,
        reason: str | None,
        now: float,
        measured: _Measured = (None, None, 0, 0.0),
        *,
        streams: bool,
    ) -> Change:
        before, name_before = self.state, self.name
        self.state, self.limits_streams = state, streams
        self._stand_on(step)
        self._good, self._good_since, self._changed = 0, None, now
        self._rows.clear()
        self.changes += 1
        if reason is not None or state == "closed":
            self.reason = reason
        return Change(before, state, name_before, self.name, trigger, reason, *measured)

    def _stand_on(self, step: int) -> None:
        self._step, self.rung = step, self._rungs[step]

    def _first_without(self) -> int:
        """Return the step of the first rung without speculation."""
        return next(step for step, rung in enumerate(self._rungs) if rung.draft_length == 0)


def measure_of(name: str, trigger: Trigger) -> Measure:
    """Return what a trigger reads: its name says so where it does not."""
    return name if trigger.measure is UNSET else trigger.measure  # type: ignore[return-value]


def _triggers_of(policy: Policy, measures: frozenset[str]) -> tuple[tuple[str, Measure, Trigger], ...]:
    """Return the triggers that read such measures, with their names and what they read."""
    each = ((name, measure_of(name, trigger), trigger) for name, trigger in policy.triggers.items())
    return tuple(found for found in each if found[1] in measures)


def _is_broken(
    trigger: Trigger, measure: Measure, value: float, bound: float, closed: Closed, pays_from: float = 1.0
) -> bool:
    if measure in YIELDING and (closed.suspect or closed.values.get("break_even", 0.0) >= pays_from):
        return False
    if trigger.above is UNSET:
        return value < bound
    return value >= bound if measure in OF_FAILURES else value > bound


def _bound(bound: Any, closed: Closed) -> float:
    """Return a bound; where it depends on the draft length, that of the lengths of the window, each at its share.

    It is NaN, which nothing breaks, where a length is not known.
    """
    if not isinstance(bound, dict):
        return float(bound)
    if len(closed.lengths) == 1:
        return _of_length(bound, *closed.lengths)
    total = sum(closed.lengths.values())
    of_each = ((_of_length(bound, length), count) for length, count in closed.lengths.items())
    return float(sum(each * count for each, count in of_each)) / total if total else math.nan


def _of_length(bound: Mapping[str, float], length: int | None) -> float:
    """Return the bound of a draft length; one above the longest that has one is held to that one's."""
    found = bound.get(_key(length))
    if found is None and length is not None:
        found = bound.get(str(max((int(key) for key in bound if key.isdigit() and int(key) < length), default=0)))
    return math.nan if found is None else float(found)


def _key(length: int | None) -> str:
    return "16+" if length is not None and length >= _LONGEST else str(length)


def _known(saved: object) -> Mapping[str, Any]:
    """Return a saved state.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(saved, Mapping) or not all(key in saved for key in _KEYS):
        raise ValueError("not a saved state")
    state, rung, cause, reason, measure, streams = (saved[key] for key in _KEYS)
    if not all(isinstance(each, str) for each in (state, rung, cause)) or type(streams) is not bool:
        raise ValueError("not a saved state")
    if state not in get_args(State) or cause not in _KINDS or not all(_is_age(saved.get(key)) for key in _AGES):
        raise ValueError("not a saved state")
    if not (measure is None or (isinstance(measure, str) and measure in MEANING)):
        raise ValueError("a saved state of an unknown measure")
    if state == "closed" and not (rung == "as_asked" and reason is None and not streams):
        raise ValueError("a saved state that is closed and keeps requests from speculation at once")
    if state != "closed" and (not isinstance(reason, str) or (rung == "as_asked" and not streams)):
        raise ValueError("a saved state that is not closed and keeps no request from speculation")
    return saved


def _is_age(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _LONGEST_AGE
