"""A simulated week of one Mac with four serving processes, as it arrives in Prometheus, and what went wrong in it.

Times are minutes from Monday 00:00. A target pass takes 26 ms, a draft has four tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from collector.names import metric_name, series_names
from otel_specdecode.telemetry.names import Metric, Metrics

MINUTES = 7 * 24 * 60
HOUR = 60
DAY = 24 * HOUR
GIB = 1024**3

PASS_S = 0.026
DRAFT_SHARE = 1.5  # of a plain pass that a round with its drafting takes
LENGTH = 4

SPEED_ALERTS = frozenset(
    {
        "SpecdecodeBelowBreakEven",
        "SpecdecodeTimePerTokenHigh",
        "SpecdecodeSpeedupLow",
        "SpecdecodeSpeedupDropped",
        "SpecdecodeSlowerThanAutoregressive",
        "SpecdecodeServiceSlowdown",
    }
)
ACCEPTANCE_ALERTS = frozenset({"SpecdecodeAcceptRateLow", "SpecdecodeAcceptRateCollapsed", "SpecdecodeBelowBreakEven"})


@dataclass(frozen=True)
class Conditions:
    """What is different while something is wrong, or only unusual."""

    chance: float = 0.78  # for each proposed token to be accepted
    pace: float = 1.0  # of all passes
    round_cost: float = DRAFT_SHARE
    prefill: float = 1.0  # of speculative requests
    proposes: bool = True
    traffic: float = 1.0
    states: frozenset[str] = frozenset()
    memory: float = 0.0  # GiB a minute that a process grows by
    swap: float = 0.0
    bursts: bool = False
    down: bool = False


@dataclass(frozen=True)
class Episode:
    """A stretch of the week. ``first`` are the alerts of which one must fire in time, ``also`` others that may.

    In time is ``within`` minutes.
    """

    name: str
    start: int
    minutes: int
    conditions: Conditions
    first: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    within: int = 10

    @property
    def end(self) -> int:
        return self.start + self.minutes


def _at(day: int, hour: int, minute: int = 0) -> int:
    return day * DAY + hour * HOUR + minute


EPISODES = (
    # What is only unusual: no alert may fire.
    Episode("texts that are harder to draft", _at(0, 9), 120, Conditions(chance=0.73)),
    Episode("a rush", _at(1, 16), 60, Conditions(traffic=3)),
    Episode("a public holiday", _at(4, 0), 8 * HOUR, Conditions(traffic=0)),
    # What is wrong.
    Episode(
        *("heat slows the machine down", _at(0, 14), 60),
        Conditions(pace=1.5, states=frozenset({"serious"})),
        frozenset({"SpecdecodeThrottled"}),
    ),
    Episode(
        *("a deploy brings a bad draft", _at(1, 11), 60, Conditions(chance=0.12)),
        frozenset({"SpecdecodeAcceptRateLow"}),
        ACCEPTANCE_ALERTS | SPEED_ALERTS,
    ),
    Episode(
        *("the mix shifts to texts the draft does not know", _at(2, 11), 60, Conditions(chance=0.52)),
        frozenset({"SpecdecodeAcceptRateLow"}),
        ACCEPTANCE_ALERTS | SPEED_ALERTS,
    ),
    Episode(
        *("the draft runs on the slow cores", _at(2, 16), 60, Conditions(round_cost=4.0)),
        frozenset({"SpecdecodeBelowBreakEven"}),
        SPEED_ALERTS,
    ),
    Episode(
        *("the draft reads every prompt again", _at(3, 10), 60, Conditions(prefill=2.5)),
        frozenset({"SpecdecodeTimeToFirstTokenHigh"}),
        frozenset({"SpecdecodeServiceSlowdown"}),
    ),
    Episode(
        *("a burst of rejections", _at(3, 14), 15, Conditions(chance=0.6, bursts=True)),
        frozenset({"SpecdecodeRollbackBurst"}),
        ACCEPTANCE_ALERTS | {"SpecdecodeSpeedupDropped"},
    ),
    Episode(
        *("an upgrade of the engine makes rounds dearer, though they still pay", _at(4, 10), 60),
        Conditions(round_cost=2.6),
        frozenset({"SpecdecodeSpeedupDropped"}),
        within=15,  # Three windows of five minutes.
    ),
    Episode(
        *("memory runs out", _at(4, 14), 40),
        Conditions(memory=0.3, swap=0.1, states=frozenset({"critical"})),
        frozenset({"SpecdecodeMemoryPressureCritical"}),
        frozenset({"SpecdecodeMemoryHigh", "SpecdecodeSwapGrowing"}),
    ),
    Episode(
        *("the plug is pulled", _at(5, 11), 40, Conditions(pace=1.2, states=frozenset({"battery"}))),
        frozenset({"SpecdecodeLowPower"}),
    ),
    Episode(
        *("the engine no longer asks the draft", _at(5, 15), 60, Conditions(proposes=False)),
        frozenset({"SpecdecodeNothingProposed"}),
        SPEED_ALERTS,
    ),
    Episode(
        *("a draft of another vocabulary", _at(6, 10), 60, Conditions(chance=0.0)),
        frozenset({"SpecdecodeNothingAccepted"}),
        ACCEPTANCE_ALERTS | SPEED_ALERTS,
    ),
    Episode(
        *("the network is gone", _at(6, 16), 40, Conditions(down=True)),
        frozenset({"SpecdecodeTelemetryGone"}),
    ),
)
"""What happens in the week beside day and night."""

RESTARTS = (_at(1, 11), _at(1, 12), _at(2, 3), _at(3, 15), _at(5, 9), _at(6, 11))
"""When all processes begin again; every second one is a deploy after which one of them has a new instance id."""

STOP = _at(6, 21)
"""When the service is stopped for the night, in order."""

BENCH_AT = 2 * HOUR
"""When, each day, a measurement runs for ten minutes, with a draft that is bad on purpose."""

STATES = {
    Metrics.SPECDECODE_HOST_THERMAL_STATE_TIME: "serious",
    Metrics.SPECDECODE_HOST_MEMORY_PRESSURE_TIME: "critical",
    Metrics.SPECDECODE_HOST_POWER_SOURCE_TIME: "battery",
}


def _some(metric: Metric, low: float, high: float, step: int) -> list[float]:
    assert metric.buckets is not None
    return [*[bound for bound in metric.buckets if low <= bound <= high][::step], math.inf]


BOUNDS = {
    Metrics.SPECDECODE_DECODE_TIME_PER_TOKEN: _some(Metrics.SPECDECODE_DECODE_TIME_PER_TOKEN, 0.009, 0.12, 2),
    Metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN: _some(Metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN, 0.08, 0.9, 2),
}
"""The buckets that the week's values fall into; all others would only repeat their neighbours."""

BASE = {
    mode: 'gen_ai_operation_name="chat", gen_ai_provider_name="mlx", gen_ai_request_model="qwen",'
    f' specdecode_mode="{mode}", specdecode_requested_mode="{mode}", specdecode_method="{method}"'
    for mode, method in (("speculative", "draft_model"), ("autoregressive", "none"))
}


def conditions(minute: int) -> Conditions:
    """What holds in a minute."""
    return next((one.conditions for one in EPISODES if one.start <= minute < one.end), Conditions())


def requests_a_minute(minute: int) -> float:
    """Requests that arrive at each process: many by day, hardly any at night, fewer on the weekend."""
    hour = minute % DAY / HOUR
    by_day = max(0.0, math.sin(math.pi * (hour - 7) / 15)) if 7 < hour < 22 else 0.0
    weekend = 0.7 if minute >= 5 * DAY else 1.0
    return (0.05 + 6 * by_day**0.5 * weekend) * conditions(minute).traffic


class Record:
    """What Prometheus holds of the week: of each series when its value changed; None while nothing arrives."""

    def __init__(self) -> None:
        self.changes: dict[str, list[tuple[int, float | None]]] = {}

    def put(self, name: str, minute: int, value: float | None) -> None:
        changes = self.changes.setdefault(name, [(0, None)])
        if changes[-1][1] != value:
            changes.append((minute, value))

    def notation(self, name: str, start: int, end: int) -> str:
        """The values from one minute to another, end excluded, as promtool writes series."""
        changes = [*self.changes[name], (MINUTES, None)]
        found = []
        for (since, value), (until, _) in pairwise(changes):
            count = min(until, end) - max(since, start)
            if count > 0:
                found.append(f"_x{count}" if value is None else f"{value:.7g}x{count - 1}")
        return " ".join(found)


class Process:
    """One serving process: its counters since it began."""

    def __init__(self, instance: str, rng: random.Random) -> None:
        self.target = f'job="chat", instance="{instance}", node="mac-1"'
        self.rng = rng
        self.memory = 5.0
        self.values: dict[str, float] = {}
        self.kinds = {
            (mode, cohort): Kind(self, mode, cohort)
            for mode, cohort in (("speculative", "normal"), ("autoregressive", "normal"), ("speculative", "bench"))
            if cohort == "normal" or instance == "p0"
        }

    def minute(self, minute: int, now: Conditions) -> None:
        """Serve what arrives in a minute."""
        expected = requests_a_minute(minute)
        for _ in range(int(expected) + (self.rng.random() < expected % 1)):
            mode = "autoregressive" if self.rng.random() < 0.2 else "speculative"
            self.kinds[mode, "normal"].request(now)
        if minute % DAY - BENCH_AT in range(10) and ("speculative", "bench") in self.kinds:
            self.kinds["speculative", "bench"].request(Conditions(chance=0.1))
        self.active(round(min(2.0, expected / 4) + 0.3))
        self._host(now)

    def active(self, requests: int) -> None:
        """Set the number of requests that run."""
        self.values[self.name(Metrics.SPECDECODE_REQUEST_ACTIVE, BASE["speculative"])] = requests

    def name(self, metric: Metric, labels: str, suffix: str = "") -> str:
        """The selector of one series."""
        name = metric_name(metric.name, metric.unit, metric.instrument) + suffix
        assert name in series_names(metric)
        return f"{name}{{{self.target}{', ' if labels else ''}{labels}}}"

    def _host(self, now: Conditions) -> None:
        self.memory = self.memory + now.memory if now.memory else 5.0
        self.values[self.name(Metrics.PROCESS_MEMORY_USAGE, "")] = 2 * GIB
        self.values[self.name(Metrics.SPECDECODE_PROCESS_FOOTPRINT, "")] = round(self.memory, 2) * GIB
        self.values[self.name(Metrics.SYSTEM_MEMORY_LIMIT, "")] = 36 * GIB
        for metric, unusual in STATES.items():
            name = self.name(metric, f'{metric.labels[0].replace(".", "_")}="{unusual}"')
            self.values[name] = self.values.get(name, 0) + 60 * (unusual in now.states)


class Kind:
    """What one process counts of requests of one mode and cohort."""

    def __init__(self, process: Process, mode: str, cohort: str) -> None:
        self.process, self.rng = process, process.rng
        self.speculative = mode == "speculative"
        length = LENGTH if self.speculative else 0
        who = (
            f'{BASE[mode]}, specdecode_draft_length="{length}", specdecode_cohort="{cohort}",'
            ' specdecode_context_tier="short"'
        )

        def named(metric: Metric, suffix: str = "", **more: str) -> str:
            extra = "".join(f', {label}="{value}"' for label, value in more.items())
            name = process.name(metric, who + extra, suffix)
            process.values[name] = 0
            return name

        self.started = process.name(Metrics.SPECDECODE_REQUEST_STARTED, BASE[mode])
        process.values[self.started] = 0
        self.tokens = [
            named(Metrics.SPECDECODE_DRAFT_TOKENS, specdecode_draft_outcome=outcome)
            for outcome in ("accepted", "rejected")
        ]
        self.rounds = [
            named(Metrics.SPECDECODE_VERIFY_PASSES, specdecode_round_outcome=outcome)
            for outcome in ("all_accepted", "rolled_back", "all_rejected", "cut")
        ]
        self.rollbacks = named(Metrics.SPECDECODE_ROLLBACKS)
        self.passes, self.emitted = named(Metrics.SPECDECODE_DECODE_PASSES), named(Metrics.SPECDECODE_DECODE_TOKENS)
        self.sums = {
            metric: (named(metric, "_sum"), named(metric, "_count"))
            for metric in (
                Metrics.SPECDECODE_DECODE_DURATION,
                Metrics.SPECDECODE_ROUND_DURATION,
                Metrics.GEN_AI_SERVER_REQUEST_DURATION,
                *BOUNDS,
            )
        }
        self.buckets = {
            metric: [(bound, named(metric, "_bucket", le=f"{bound:g}".replace("inf", "+Inf"))) for bound in bounds]
            for metric, bounds in BOUNDS.items()
        }

    def request(self, now: Conditions) -> None:
        """Serve one request."""
        tokens = max(8, int(self.rng.lognormvariate(4.6, 0.5)))
        rounds = self._rounds(tokens, now.chance) if self.speculative and now.proposes else []
        passes, emitted = len(rounds) or tokens, sum(rounds) + len(rounds) or tokens
        pace = PASS_S * now.pace * self.rng.lognormvariate(0, 0.03)
        decode = passes * pace * (now.round_cost if rounds else 1.0)
        first = self.rng.lognormvariate(-1.6, 0.5) * now.pace * (1.05 * now.prefill if self.speculative else 1.0)
        accepted, full, none = sum(rounds), rounds.count(LENGTH), rounds.count(0)
        rolled = len(rounds) - full - none
        for name, value in (
            *((self.started, 1), (self.passes, passes), (self.emitted, emitted), (self.rollbacks, rolled + none)),
            *zip(self.tokens, (accepted, LENGTH * len(rounds) - accepted), strict=True),
            *zip(self.rounds, (full, rolled, none, 0), strict=True),
        ):
            self.process.values[name] += value
        self._record(Metrics.SPECDECODE_DECODE_DURATION, decode)
        self._record(Metrics.SPECDECODE_ROUND_DURATION, decode, passes)
        self._record(Metrics.GEN_AI_SERVER_REQUEST_DURATION, decode + first)
        self._record(Metrics.SPECDECODE_DECODE_TIME_PER_TOKEN, decode / emitted)
        self._record(Metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN, first)

    def _rounds(self, tokens: int, chance: float) -> list[int]:
        """Accepted tokens of each round."""
        chance = min(0.95, max(0.0, chance + self.rng.gauss(0, 0.03))) if chance else 0.0
        weights = [chance**place * (1 - chance) for place in range(LENGTH)] + [chance**LENGTH]
        mean = sum(place * weight for place, weight in enumerate(weights)) + 1
        return self.rng.choices(range(LENGTH + 1), weights, k=max(1, round(tokens / mean)))

    def _record(self, metric: Metric, value: float, count: int = 1) -> None:
        total, number = self.sums[metric]
        self.process.values[total] += value
        self.process.values[number] += count
        for bound, name in self.buckets.get(metric, ()):
            if value <= bound:
                self.process.values[name] += 1


def week(seed: int) -> Record:
    """Every series of the week."""
    rng, record = random.Random(seed), Record()
    processes: list[Process] = []
    swap, bursts = 1.0, 0
    for minute in range(STOP + 1):
        now = conditions(minute)
        if minute in (0, *RESTARTS):
            processes = _begin(minute, rng)
        swap += now.swap
        bursts += now.bursts and not conditions(minute - 1).bursts
        values: dict[str, float] = {}
        for process in processes:
            process.minute(minute, now)
            if minute == STOP:
                process.active(0)
            values.update(process.values)
        first, base = processes[0], BASE["speculative"]
        values[first.name(Metrics.SYSTEM_PAGING_USAGE, 'system_paging_state="used"')] = swap * GIB
        values[first.name(Metrics.SPECDECODE_ROLLBACK_BURSTS, base)] = bursts
        for name in record.changes.keys() | values.keys():
            record.put(name, minute, None if now.down else values.get(name))
    for name in record.changes:
        record.put(name, STOP + 1, None)
    return record


def _begin(minute: int, rng: random.Random) -> list[Process]:
    """New processes: three under the instance id they had before, one that has a new id after a deploy."""
    deploys = sum(deploy <= minute for deploy in RESTARTS[1::2])
    return [Process(name, rng) for name in ("p0", "p1", "p2", f"p3-{deploys}")]


def faults() -> Iterator[Episode]:
    """The episodes in which something was wrong."""
    return (one for one in EPISODES if one.first)


def allowed(alert: str, minute: int, after: int = 15) -> bool:
    """Whether an alert may fire now: its fault is there, or its windows still hold some of it."""
    return any(alert in one.first | one.also and one.start <= minute <= one.end + after for one in EPISODES)
