"""What requests without a draft take: of the control cohort of this process, or as measured before."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Any, NamedTuple

from otel_specdecode.generation.comparison import Standing

MOST_CONDITIONS = 256
"""Combinations that are kept; of more, the one that was written longest ago is forgotten."""

ENOUGH_PASSES = 50
ENOUGH_REQUESTS = 2
"""Decode passes, and requests, without a draft that tell whether the target is as fast as it usually is."""

MOVES_LITTLE = 25
"""One request in so many moves no quantile by much: with fewer new ones than that nothing is worked out anew."""

_LONGEST = 1e15
"""Above which a number of a file is nothing that was measured, and too large to calculate with."""

MOST_REQUESTS = 200
"""Newest requests of a combination that quantiles are of, and newest stretches of them that the usual pass is of."""


class Conditions(NamedTuple):
    """What makes durations comparable: they are of the same engine, model and tier, and of a machine in the same state.

    Attributes:
        provider: GenAI provider name of the engine.
        model: Target model, None if unknown.
        operation: GenAI operation name.
        tier: `short`, `mid` or `long`, by input tokens.
        band: Requests that ran at once: `1`, `2`, `4` or `8`, each up to the next.
        power_mode: Of the machine.
        thermal_state: Of the machine.
    """

    provider: str
    model: str | None
    operation: str
    tier: str
    band: str = "1"
    power_mode: str = "unknown"
    thermal_state: str = "unknown"


@dataclass(frozen=True, slots=True)
class Usual:
    """What requests of one combination take, in seconds; None where it is not known.

    Attributes:
        round_seconds: Median of the stretches' mean duration of a decode pass.
        time_per_token_p50: Median of the time per token.
        time_per_token_p95: 95th percentile of it.
        time_to_first_token_p50: Median of the time to the first token.
        tokens_per_second: Output tokens of the whole service, a second in which requests run.
        requests: Requests that it is of.
    """

    round_seconds: float | None = None
    time_per_token_p50: float | None = None
    time_per_token_p95: float | None = None
    time_to_first_token_p50: float | None = None
    tokens_per_second: float | None = None
    requests: int = 0


class _Requests:
    """When requests of one combination ended, what they took, and stretches of their passes; newest last."""

    __slots__ = (
        "passes",
        "requests",
        "round_seconds",
        "since_usual",
        "times_per_token",
        "times_to_first_token",
        "usual",
        "were_enough",
    )

    def __init__(self) -> None:
        self.requests: deque[float] = deque(maxlen=MOST_REQUESTS)
        self.times_per_token: deque[float | None] = deque(maxlen=MOST_REQUESTS)
        self.times_to_first_token: deque[float | None] = deque(maxlen=MOST_REQUESTS)
        self.passes: deque[tuple[float, int, float]] = deque(maxlen=MOST_REQUESTS)
        self.usual: Usual | None = None
        self.round_seconds: float | None = None
        self.since_usual = 0
        self.were_enough = False

    def usual_pass(self) -> float | None:
        """Return the usual duration of a decode pass: of stretches the median, so that one that stalled is nothing."""
        if self.round_seconds is None and self.passes:
            self.round_seconds = quantile([seconds / count for _, count, seconds in self.passes], 0.5)
        return self.round_seconds


class Baseline:
    """Requests without a draft, by conditions. Not for several threads."""

    def __init__(self, requests: int, max_age: float, fixed: Mapping[Conditions, Usual] | None = None) -> None:
        """Start with nothing, or with what was measured before.

        Args:
            requests: Requests that make a combination known.
            max_age: Seconds after which a request counts no more.
            fixed: Numbers of before, in place of all that is added.
        """
        self._needed = requests
        self._max_age = max_age
        self._fixed = fixed
        self._found: dict[Conditions, _Requests] = {}

    def add_passes(self, conditions: Conditions, passes: int, seconds: float, now: float) -> None:
        """Take decode passes of a request without a draft."""
        if self._fixed is None and passes and 0 < seconds < math.inf:
            found = self._of(conditions)
            found.passes.append((now, passes, seconds))
            found.round_seconds = None

    def add_request(
        self, conditions: Conditions, time_per_token: float | None, time_to_first_token: float | None, now: float
    ) -> None:
        """Take a finished request without a draft, its times in seconds."""
        if self._fixed is None:
            found = self._of(conditions)
            found.requests.append(now)
            found.times_per_token.append(_or_none(time_per_token))
            found.times_to_first_token.append(_or_none(time_to_first_token))
            found.since_usual += 1
            if found.since_usual * MOVES_LITTLE >= len(found.requests):
                found.usual = None

    def round_seconds(self, conditions: Conditions, now: float) -> float | None:
        """Return the usual duration of a decode pass without a draft, None if too few requests tell."""
        usual = self.requests(conditions, now)
        if usual is None or self._fixed is not None:
            return None if usual is None else usual.round_seconds
        return self._found[conditions].usual_pass()

    def drift_of_passes(self, each: Iterable[Conditions], since: float) -> float | None:
        """Return the duration of decode passes without a draft since some time, over the usual one.

        A target that is slow for everybody is no fault of a draft: what looks bad is held against requests of the
        same time. Numbers of before do not drift.

        Args:
            each: Combinations that count together.
            since: Clock reading in seconds.

        Returns:
            The ratio, None if too few passes tell.
        """
        if self._fixed is not None:
            return 1.0
        passes, ratios = 0, []
        for found in filter(None, map(self._found.get, each)):
            usual = found.usual_pass()
            for at, count, seconds in reversed(found.passes):
                if at < since:
                    break
                passes += count
                ratios.append(seconds / count / usual if usual else 1.0)
        return quantile(ratios, 0.5) if passes >= ENOUGH_PASSES else None

    def drift_of_requests(self, each: Iterable[Conditions], since: float, now: float) -> float | None:
        """Return the time per token of requests without a draft since some time, over the usual one; see above."""
        if self._fixed is not None:
            return 1.0
        ratios: list[float] = []
        for conditions in each:
            usual = self.requests(conditions, now)
            median = None if usual is None else usual.time_per_token_p50
            if not median:
                continue
            found = self._found[conditions]
            newer = islice(found.times_per_token, bisect_left(found.requests, since), None)
            ratios.extend([each / median for each in filter(None, newer)])
        return quantile(ratios, 0.5) if len(ratios) >= ENOUGH_REQUESTS else None

    def requests(self, conditions: Conditions, now: float) -> Usual | None:
        """Return what requests of a combination take, None if there are too few of them, or too old ones."""
        if self._fixed is not None:
            return self._fixed.get(conditions)
        found = self._found.get(conditions)
        if found is None:
            return None
        self._age(found, now)
        if len(found.requests) < self._needed:
            return None
        if found.usual is None:
            found.usual, found.since_usual, found.were_enough = _usual(found), 0, True
        return found.usual

    def thin(self, conditions: Conditions, now: float) -> bool:
        """Return whether there are too few requests of a combination."""
        return self.requests(conditions, now) is None

    def standing(self, conditions: Conditions, now: float) -> Standing:
        """Return whether a combination is known, and if not, why."""
        if not self.thin(conditions, now):
            return "known"
        found = self._found.get(conditions)
        if found is not None and found.were_enough:
            return "stale"
        if found is not None and found.requests:
            return "thin"
        others = [each for each in self._fixed or list(self._found) if each[:3] == conditions[:3]]
        return "missing" if all(self.thin(each, now) for each in others) else "not_comparable"

    def count(self, conditions: Conditions) -> int:
        """Return how many requests of a combination there are, as of the last look at it."""
        if self._fixed is not None:
            return self._fixed[conditions].requests if conditions in self._fixed else 0
        return len(self._found[conditions].requests) if conditions in self._found else 0

    @property
    def is_fixed(self) -> bool:
        """Whether it is numbers of before."""
        return self._fixed is not None

    def fixed_output(self, conditions: Conditions) -> dict[str, float]:
        """Return the tokens a second of numbers of before, by how many requests ran at once; none of what is added.

        Args:
            conditions: All but the number of requests at once.
        """
        return {
            each.band: usual.tokens_per_second
            for each, usual in (self._fixed or {}).items()
            if usual.tokens_per_second and each._replace(band=conditions.band) == conditions
        }

    def all(self, now: float) -> dict[Conditions, Usual]:
        """Return all that is known."""
        if self._fixed is not None:
            return dict(self._fixed)
        known = {conditions: self.requests(conditions, now) for conditions in list(self._found)}
        return {conditions: usual for conditions, usual in known.items() if usual is not None}

    def _of(self, conditions: Conditions) -> _Requests:
        found = self._found.pop(conditions, None) or _Requests()
        self._found[conditions] = found
        if len(self._found) > MOST_CONDITIONS:
            del self._found[next(iter(self._found))]
        return found

    def _age(self, found: _Requests, now: float) -> None:
        while found.requests and now - found.requests[0] > self._max_age:
            for kept in (found.requests, found.times_per_token, found.times_to_first_token):
                kept.popleft()
            found.usual = None
        while found.passes and now - found.passes[0][0] > self._max_age:
            found.passes.popleft()
            found.usual = found.round_seconds = None


def band_of(running: int) -> str:
    """Return the concurrency band of so many requests at once."""
    if running < 2:
        return "1"
    if running < 4:
        return "2"
    return "4" if running < 8 else "8"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of at least one value."""
    return _ranked(sorted(values), share)


def _ranked(ordered: Sequence[float], share: float) -> float:
    return ordered[min(max(math.ceil(share * len(ordered)) - 1, 0), len(ordered) - 1)]


def as_rows(known: Mapping[Conditions, Usual]) -> list[dict[str, Any]]:
    """Return a baseline as rows for a file."""
    return [{**conditions._asdict(), **asdict(usual)} for conditions, usual in known.items()]


def from_rows(rows: Any) -> dict[Conditions, Usual]:
    """Return a baseline from the rows of a file.

    Raises:
        ValueError: If they are none; the text says which row.
    """
    found: dict[Conditions, Usual] = {}
    numbers = {each.name for each in fields(Usual)}
    if not isinstance(rows, list):
        raise ValueError("there are no rows")
    for place, row in enumerate(rows, 1):
        if not isinstance(row, dict) or row.keys() != numbers | set(Conditions._fields):
            raise ValueError(f"row {place} has not the keys of a baseline")
        conditions = {key: row[key] for key in Conditions._fields}
        if not all(isinstance(name, str) or (name is None and key == "model") for key, name in conditions.items()):
            raise ValueError(f"row {place} holds something that is no name")
        measured = {key: row[key] for key in numbers}
        if not all(value is None or _is_duration(value) for value in measured.values()):
            raise ValueError(f"row {place} holds something that is no number of seconds")
        found[Conditions(**conditions)] = Usual(**measured)
    return found


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _LONGEST


def _or_none(seconds: float | None) -> float | None:
    return seconds if seconds is not None and 0 <= seconds < math.inf else None


def _usual(found: _Requests) -> Usual:
    per_token = sorted([each for each in found.times_per_token if each is not None])
    first = [each for each in found.times_to_first_token if each is not None]
    return Usual(
        round_seconds=found.usual_pass(),
        time_per_token_p50=_ranked(per_token, 0.5) if per_token else None,
        time_per_token_p95=_ranked(per_token, 0.95) if per_token else None,
        time_to_first_token_p50=quantile(first, 0.5) if first else None,
        requests=len(found.requests),
    )
