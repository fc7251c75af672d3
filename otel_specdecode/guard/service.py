"""What the whole service puts out while requests run: a draft may win each request and lose the batching of all."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_specdecode.guard.baseline import band_of
from otel_specdecode.guard.windows import COMPARABLE

ENOUGH_SECONDS = 30.0
"""Seconds without speculation, with so many requests at once, that make their output a second known."""


@dataclass(slots=True)
class _Output:
    seconds: float = 0.0
    tokens: int = 0


@dataclass(slots=True)
class ServiceMeter:
    """Running requests, and the output of the service by how many ran at once. Not for several threads.

    Attributes:
        running: Requests that run.
        speculating: Those of them that speculate.
    """

    running: int = 0
    speculating: int = 0
    _since: float = 0.0
    _plain: dict[str, _Output] = field(default_factory=dict)
    _window: dict[str, _Output] = field(default_factory=dict)

    def change(self, running: int, speculating: int, now: float) -> None:
        """Take that requests began or ended."""
        self._pass_time(now)
        self.running = max(self.running + running, 0)
        self.speculating = max(self.speculating + speculating, 0)

    def finish(self, tokens: int, speculated: bool, now: float) -> None:
        """Take the output of a request that ended, with or without speculation of its own."""
        self._pass_time(now)
        self._output(speculated).tokens += tokens

    def tokens_per_second(self, band: str) -> float | None:
        """Return the output without speculation, with so many requests at once; None if too little is known."""
        found = self._plain.get(band)
        if found is None or found.seconds < ENOUGH_SECONDS:
            return None
        return found.tokens / found.seconds

    def speedup(self, fixed: dict[str, float]) -> float | None:
        """Return the output with speculation over that without, since the last call; None if not comparable.

        Args:
            fixed: Tokens a second without speculation by band, in place of what was seen here.
        """
        window, self._window = self._window, {}
        seconds = sum(each.seconds for each in window.values())
        comparable = expected = 0.0
        tokens = 0
        for band, each in window.items():
            usual = fixed.get(band, self.tokens_per_second(band))
            if usual:
                comparable += each.seconds
                expected += each.seconds * usual
                tokens += each.tokens
        if not expected or comparable < COMPARABLE * seconds:
            return None
        return tokens / expected

    def _output(self, speculated: bool = False) -> _Output:
        kept = self._window if self.speculating or speculated else self._plain
        return kept.setdefault(band_of(self.running), _Output())

    def _pass_time(self, now: float) -> None:
        if self.running:
            self._output().seconds += max(now - self._since, 0.0)
        self._since = max(self._since, now)
