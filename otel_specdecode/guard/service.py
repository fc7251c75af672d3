"""What the whole service puts out while requests run: a draft may win each request and lose the batching of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_specdecode.guard.baseline import band_of
from otel_specdecode.guard.windows import COMPARABLE

ENOUGH_SECONDS = 300.0
"""Seconds without speculation, with so many requests at once, that make their output a second known."""

FORGETS_AFTER = 3600.0
"""Seconds of which the output without speculation is remembered; what was before counts half, and half again."""

WINDOW_SECONDS = 10.0
"""Seconds with speculation that say something."""

ALONE = "1"
"""The band of a request that runs alone: there is no batch to lose, and its own time per token says all."""

LONGEST_STEP = 60.0
"""Seconds without any sign of a running request, above which the process stood still or the clock jumped."""


class Output(NamedTuple):
    """Seconds in which requests ran, and the tokens of that time."""

    seconds: float = 0.0
    tokens: int = 0


Mark = Mapping[str, Output]
"""Output with speculation up to some time, by how many requests ran at once."""


@dataclass(slots=True)
class _Sum:
    seconds: float = 0.0
    tokens: float = 0.0


@dataclass(slots=True)
class ServiceMeter:
    """Running requests, and the output of the service by how many ran at once. Not for several threads.

    Tokens count when they come, not when their request ends: else those of a long request would all count for the
    moment in which it ran alone at last.

    Attributes:
        running: Requests that run.
        speculating: Those of them that speculate.
    """

    running: int = 0
    speculating: int = 0
    _since: float = 0.0
    _plain: dict[str, _Sum] = field(default_factory=dict)
    _speculative: dict[str, _Sum] = field(default_factory=dict)

    def change(self, running: int, speculating: int, now: float) -> None:
        """Take that requests began or ended."""
        if self.running:
            self._pass_time(now)
        elif now > self._since:
            self._since = now
        self.running += running
        self.speculating += speculating
        if self.running < 0 or self.speculating < 0:
            self.running, self.speculating = max(self.running, 0), max(self.speculating, 0)

    def add(self, tokens: int, now: float) -> None:
        """Take tokens that came."""
        if self.running:
            self._pass_time(now).tokens += tokens

    def tokens_per_second(self, band: str) -> float | None:
        """Return the output without speculation, with so many requests at once; None if too little is known."""
        found = self._plain.get(band)
        if found is None or found.seconds < ENOUGH_SECONDS:
            return None
        return found.tokens / found.seconds

    def mark(self) -> Mark:
        """Return the output with speculation until now."""
        return {band: Output(each.seconds, int(each.tokens)) for band, each in self._speculative.items()}

    def speedup(self, since: Mark, fixed: Mapping[str, float]) -> float | None:
        """Return the output of several requests at once, with speculation over without; None if not comparable.

        Args:
            since: From when on.
            fixed: Tokens a second without speculation by band, in place of what was seen here.
        """
        seconds = comparable = expected = tokens = 0.0
        for band, each in self._speculative.items():
            if band == ALONE:
                continue
            before = since.get(band, Output())
            passed = each.seconds - before.seconds
            usual = fixed.get(band, self.tokens_per_second(band))
            seconds += passed
            if usual:
                comparable += passed
                expected += passed * usual
                tokens += each.tokens - before.tokens
        if not expected or seconds < WINDOW_SECONDS or comparable < COMPARABLE * seconds:
            return None
        return tokens / expected

    def _pass_time(self, now: float) -> _Sum:
        """Give the time since the last sign, which now is another one, to what ran in it."""
        kept = self._speculative if self.speculating else self._plain
        band = band_of(self.running)
        found = kept.get(band)
        if found is None:
            found = kept[band] = _Sum()
        passed = now - self._since
        if passed <= 0:
            return found
        self._since = now
        if passed <= LONGEST_STEP:
            found.seconds += passed
            if kept is self._plain and found.seconds > FORGETS_AFTER:
                found.seconds /= 2
                found.tokens /= 2
        return found
