"""What a breaker must do, written a second time as plainly as possible: no speed, no classes of the library."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

ROUNDS = ("break_even", "accept_rate", "all_rejected")
REQUESTS = ("time_per_token", "time_to_first_token", "speedup", "service_speedup", "queue", "nothing_proposed")
FAILURES = ("out_of_memory", "verifier_error", "quality_canary")
MACHINE = ("swap_growth", "memory_pressure", "thermal_state")
KINDS = {"rounds": ROUNDS, "requests": REQUESTS, "failures": FAILURES, "machine": MACHINE}
SEVEREST = ("unload", "autoregressive", "streams", "down")


@dataclass
class Rule:
    """A trigger of the policy; a bound of None is one that no value breaks."""

    name: str
    measure: str
    above: bool
    bound: float
    windows: int
    action: str
    seconds: float = 0.0


@dataclass
class Reference:
    """Where requests run, from a list of rungs: the last ones, from `without` on, have no speculation.

    Attributes:
        rungs: Names of the rungs.
        without: Place of the first rung without speculation.
        rules: The triggers.
    """

    rungs: list[str]
    without: int
    rules: list[Rule]
    cool_down: float = 300.0
    longest: float = 14_400.0
    wanted: int = 2
    hysteresis: float = 0.05
    dwell: float = 120.0
    state: str = "closed"
    place: int = 0
    streams: bool = False
    since: float = 0.0
    rows: dict[str, list[float]] = field(default_factory=dict)
    blamed: tuple[str, str] | None = None
    good: list[float] = field(default_factory=list)
    climbed: float | None = None
    cool_down_now: float = 300.0
    dwell_now: float = 120.0

    def broken(self, rule: Rule, value: float, bound: float, pays: float | None, must_pay: float) -> bool:
        """A rate says nothing where the rounds pay; failures count from their bound on."""
        if rule.measure in ("accept_rate", "all_rejected") and pays is not None and pays >= must_pay:
            return False
        if rule.measure in FAILURES:
            return value >= bound
        return value > bound if rule.above else value < bound

    def window(self, kind: str, values: dict[str, float], now: float, lasted: float) -> str | None:
        """Take a window that lasted so many seconds; return the name of what was done, None if nothing was."""
        pays = values.get("break_even")
        tripped, all_kept = [], True
        for rule in self.rules:
            value = values.get(rule.measure, math.nan)
            if rule.measure not in KINDS[kind] or math.isnan(value) or math.isinf(value):
                continue
            if self.broken(rule, value, rule.bound, pays, 1.0):
                began = self.rows.setdefault(rule.name, [])
                began.append(now - lasted)
                all_kept = False
                if self.state == "probing" or (len(began) >= rule.windows and now - began[0] >= rule.seconds):
                    tripped.append(rule)
            else:
                self.rows[rule.name] = []
                all_kept = all_kept and self.kept(rule, value, pays)
        if tripped:
            self.good = []
            worst = min(tripped, key=lambda rule: SEVEREST.index(rule.action))
            return self.fall(kind, worst, now)
        if self.state == "closed":
            return None
        if not all_kept:
            self.good = []
            return None
        return self.rise(kind, values, now)

    def kept(self, rule: Rule, value: float, pays: float | None) -> bool:
        if rule.measure in FAILURES:
            return value == 0
        margin = 1 - self.hysteresis if rule.above else 1 + self.hysteresis
        return not self.broken(rule, value, rule.bound * margin, pays, 1 + self.hysteresis)

    def fall(self, kind: str, rule: Rule, now: float) -> str | None:
        speculates = self.state in ("closed", "limited")
        action = rule.action if speculates or rule.action == "unload" else "autoregressive"
        if action in ("down", "streams"):
            if self.state == "limited" and now - self.since < self.dwell:
                return None
            if action == "streams" and not self.streams:
                self.streams = True
                place = self.place
            else:
                place = min(self.place + 1, self.without)
        else:
            lowest = len(self.rungs) - 1 if action == "unload" else self.without
            if self.state == "open" and self.place >= lowest:
                return None
            place = max(self.place, lowest)
        if self.state == "probing":
            self.cool_down_now = self.twice(self.cool_down_now)
        elif self.climbed is not None and now - self.climbed < 10 * self.dwell_now:
            self.cool_down_now, self.dwell_now = self.twice(self.cool_down_now), self.twice(self.dwell_now)
        elif self.climbed is not None:
            self.cool_down_now, self.dwell_now = self.cool_down, self.dwell
        self.climbed = None
        self.blamed = (kind, rule.measure)
        self.enter("open" if place >= self.without else "limited", place, now)
        return rule.name

    def rise(self, kind: str, values: dict[str, float], now: float) -> str | None:
        if self.blamed is None or kind != self.blamed[0] or self.blamed[1] not in values:
            return None
        self.good.append(now)
        waits = {"open": self.cool_down_now, "limited": self.dwell_now, "probing": 0.0}[self.state]
        if now - self.since < waits:
            return None
        if kind == "machine":
            if now - self.good[0] < self.cool_down_now:
                return None
        elif len(self.good) < self.wanted:
            return None
        if self.state in ("open", "probing"):
            place = self.without - 1
        elif self.place == 0:
            place, self.streams = 0, False
        else:
            place = self.place - 1
        self.climbed = now
        self.enter("limited" if place or self.streams else "closed", place, now)
        return "recovered"

    def tick(self, now: float) -> str | None:
        """Begin to probe, unless it is the machine that must be well again."""
        if self.state == "open" and now - self.since >= self.cool_down_now and (self.blamed or ("",))[0] != "machine":
            self.enter("probing", self.without, now)
            return "probe"
        return None

    def enter(self, state: str, place: int, now: float) -> None:
        self.state, self.place, self.since = state, place, now
        self.rows, self.good = {}, []

    def twice(self, seconds: float) -> float:
        return max(min(2 * seconds, self.longest), seconds)


def rules_of(triggers: dict[str, Any], length: int) -> list[Rule]:
    """The triggers of a policy, as its schema's plain data, for requests of a draft length."""
    rules = []
    for name, trigger in triggers.items():
        above = "above" in trigger
        bound = trigger["above" if above else "below"]
        if isinstance(bound, dict):
            bound = bound["16+" if length >= 16 else str(length)]
        windows, action = trigger.get("windows", 1), trigger.get("action", "autoregressive")
        seconds = trigger.get("seconds", 0.0)
        rules.append(Rule(name, trigger.get("measure", name), above, bound, windows, action, seconds))
    return rules
