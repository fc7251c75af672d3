"""Bursts of rejection as a counter, an event, and a mark on spans."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from typing import NamedTuple

from opentelemetry._logs import Logger
from opentelemetry.context import Context
from opentelemetry.trace import Span, format_trace_id

from otel_specdecode.generation.bursts import Burst, BurstDetector, Source
from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.request import Request
from otel_specdecode.identity.declared import declared
from otel_specdecode.telemetry.events import emit_burst
from otel_specdecode.telemetry.instruments import Instruments
from otel_specdecode.telemetry.labels import Labels, draft_length_label
from otel_specdecode.telemetry.names import Metrics
from otel_specdecode.thresholds import thresholds


class _Speculation(NamedTuple):
    """What is watched by itself: one model with one draft of one length, long ones together.

    A length can come with each request, so the exact one would let detectors grow without end.
    """

    provider: str
    model: str | None
    method: str
    draft: str | None
    length: str


_watches: weakref.WeakSet[BurstWatch] = weakref.WeakSet()
_numbers = itertools.count()


class BurstWatch:
    """Watches the rounds of all requests. Works on the recording thread alone, and asks no guard."""

    def __init__(self, logger: Logger, instruments: Instruments) -> None:
        """Tell bursts to a logger and a counter."""
        self._logger = logger
        self._instruments = instruments
        self._detectors: dict[_Speculation, tuple[Request, BurstDetector]] = {}
        self._open: dict[_Speculation, Labels] = {}
        self._closed = False
        _watches.add(self)

    def observe(
        self,
        at: int,
        counts: Counts,
        seconds: float,
        request: Request,
        source: Source,
        labels: Labels,
        context: Context,
    ) -> None:
        """Take rounds of a request.

        Args:
            at: Wall clock (ns) of the last of them.
            counts: What they added.
            seconds: Their decode time, in s.
            request: What was asked for.
            source: Tells it from others.
            labels: Base labels of its metrics.
            context: Holds its span.
        """
        if self._closed or not counts.finished_rounds:
            return
        watched = _of(request)
        detector = self._detector(watched, request)
        began, ended = detector.observe(at, counts, seconds, source)
        if ended is not None:
            self._tell(request, ended)
        if began:
            self._open[watched] = labels
            self._instruments.change(Metrics.SPECDECODE_ROLLBACK_BURST_ACTIVE, labels, 1)
            self._instruments.add(Metrics.SPECDECODE_ROLLBACK_BURSTS, 1, labels, context)

    def _detector(self, watched: _Speculation, request: Request) -> BurstDetector:
        """Return what watches a draft; of very many drafts the one whose rounds came longest ago is forgotten."""
        found = self._detectors.pop(watched, None) or (request, BurstDetector())
        self._detectors[watched] = found
        if len(self._detectors) > thresholds()["labels"]["configurations"]:
            first = next(iter(self._detectors))
            forgotten, detector = self._detectors.pop(first)
            ended = detector.finish()
            if ended is not None:
                self._tell(forgotten, ended)
        return found[1]

    def mark(self, request: Request, source: Source) -> bool:
        """Return whether a request that ends now belongs to a burst."""
        watched = self._detectors.get(_of(request))
        return watched is not None and watched[1].mark(source)

    @property
    def goes_on(self) -> bool:
        """Whether any burst goes on."""
        return any(detector.in_burst for _, detector in list(self._detectors.values()))

    def settle(self) -> None:
        """Tell of bursts whose rounds have stopped coming."""
        now = time.time_ns()
        for request, detector in list(self._detectors.values()):
            ended = detector.settle(now)
            if ended is not None:
                self._tell(request, ended)

    def finish(self) -> None:
        """Tell of bursts that go on, as the process ends."""
        for request, detector in self._detectors.values():
            ended = detector.finish()
            if ended is not None:
                self._tell(request, ended)

    def close(self) -> None:
        """Tell of bursts that go on, and watch no more: nobody would tell of their end."""
        self.finish()
        self._closed = True

    def forget(self) -> None:
        """In the child of a fork: its parent's rounds are not its own."""
        self._detectors.clear()
        self._open.clear()

    def _tell(self, request: Request, burst: Burst) -> None:
        labels = self._open.pop(_of(request), None)
        if labels is not None:
            self._instruments.change(Metrics.SPECDECODE_ROLLBACK_BURST_ACTIVE, labels, -1)
        emit_burst(self._logger, request, burst, declared().run_id)


def any_burst() -> bool:
    """Return whether a burst goes on anywhere in this process."""
    return any(watch.goes_on for watch in list(_watches))


def settle_bursts() -> None:
    """Tell of bursts whose rounds have stopped coming, on the recording thread."""
    for watch in list(_watches):
        watch.settle()


def finish_bursts() -> None:
    """Tell of bursts that go on, on the recording thread."""
    for watch in list(_watches):
        watch.finish()


def _forget_parents_rounds() -> None:
    for watch in list(_watches):
        watch.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_rounds)


def source_of(span: Span, tenant: str | None) -> Source:
    """Return what tells the rounds of one request from those of others.

    Args:
        span: The request's; its trace is named only if it is sampled.
        tenant: On whose behalf it runs.
    """
    context = span.get_span_context()
    return Source(next(_numbers), format_trace_id(context.trace_id) if context.trace_flags.sampled else None, tenant)


def _of(request: Request) -> _Speculation:
    length = draft_length_label(request.draft_max_tokens)
    return _Speculation(request.provider, request.model, request.method, request.draft_model, length)
