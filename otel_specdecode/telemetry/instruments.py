"""The instruments of one meter provider, made from the registry."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from otel_specdecode.host.memory import peak_resident_bytes
from otel_specdecode.telemetry.names import SCHEMA_URL, Metric, Metrics
from otel_specdecode.telemetry.thinning import Thinner
from otel_specdecode.thresholds import thresholds
from otel_specdecode.version import __version__

SCOPE = "otel_specdecode"

Labels = Mapping[str, str]
LabelKey = tuple[str, ...]

_OBSERVED = (Metrics.SPECDECODE_REQUEST_ACTIVE, Metrics.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME)

_made: weakref.WeakKeyDictionary[MeterProvider, Instruments] = weakref.WeakKeyDictionary()
_making = threading.Lock()


class Instruments:
    """One instrument for each metric of the registry, and what belongs to their time series.

    Attributes:
        active: Requests in flight for each set of label values.
    """

    def __init__(self, provider: MeterProvider) -> None:
        """Make every instrument."""
        meter = provider.get_meter(SCOPE, __version__, SCHEMA_URL)
        self.active: dict[LabelKey, tuple[Labels, int]] = {}
        self._seen: set[LabelKey] = set()
        self._thinners: dict[tuple[str, LabelKey], Thinner] = {}
        self._made: dict[str, Any] = {}
        for metric in _all_metrics():
            if metric in _OBSERVED:
                continue
            if metric.instrument == "histogram":
                self._made[metric.name] = meter.create_histogram(
                    metric.name, metric.unit, metric.brief, explicit_bucket_boundaries_advisory=metric.buckets
                )
            else:
                self._made[metric.name] = meter.create_counter(metric.name, metric.unit, metric.brief)
        requests, peak = _OBSERVED
        meter.create_observable_up_down_counter(requests.name, [self._observe_active], requests.unit, requests.brief)
        meter.create_observable_gauge(peak.name, [_observe_peak], peak.unit, peak.brief)

    def add(self, metric: Metric, amount: int, labels: Labels, context: Context) -> None:
        """Add to a counter."""
        self._made[metric.name].add(amount, labels, context)

    def record(self, metric: Metric, value: float, labels: Labels, context: Context) -> None:
        """Record a value of a histogram."""
        self._made[metric.name].record(value, labels, context)

    def thinner(self, metric: Metric, key: LabelKey) -> Thinner:
        """Return what thins one metric of one set of label values."""
        place = (metric.name, key)
        if place not in self._thinners:
            rates = thresholds()["recording"]
            rounds = metric is Metrics.SPECDECODE_ROUND_DURATION
            self._thinners[place] = Thinner(rates["round_durations_per_second" if rounds else "chunk_times_per_second"])
        return self._thinners[place]

    def first_seen(self, key: LabelKey) -> bool:
        """Return whether a set of label values is new, and remember it."""
        new = key not in self._seen
        self._seen.add(key)
        return new

    def change_active(self, key: LabelKey, labels: Labels, change: int) -> None:
        """Count a request in or out."""
        self.active[key] = (labels, self.active.get(key, (labels, 0))[1] + change)

    def _observe_active(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count, labels) for labels, count in list(self.active.values())]


def instruments_of(provider: MeterProvider) -> Instruments:
    """Return the instruments of a meter provider, the same ones every time."""
    with _making:
        instruments = _made.get(provider)
        if instruments is None:
            instruments = _made[provider] = Instruments(provider)
        return instruments


def _forget_parents_requests() -> None:
    """In the child of a fork: its parent's requests are not active here, and nobody holds its locks."""
    global _making
    _making = threading.Lock()
    for instruments in list(_made.values()):
        instruments.active.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_requests)


def _all_metrics() -> list[Metric]:
    return [value for value in vars(Metrics).values() if isinstance(value, Metric)]


def _observe_peak(_: CallbackOptions) -> Iterable[Observation]:
    peak = peak_resident_bytes()
    return [] if peak is None else [Observation(peak)]
