"""The instruments of one meter provider, made from the registry."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from otel_specdecode.telemetry.guarding import guard_observers
from otel_specdecode.telemetry.host_metrics import Observer, Watch, host_observers, watch
from otel_specdecode.telemetry.labels import LabelKey, Labels, key_of
from otel_specdecode.telemetry.names import SCHEMA_URL, Metric, Metrics
from otel_specdecode.telemetry.tenancy import TenantLabels
from otel_specdecode.telemetry.thinning import Thinner
from otel_specdecode.thresholds import thresholds
from otel_specdecode.version import __version__

SCOPE = "otel_specdecode"

LEVELS = (Metrics.SPECDECODE_REQUEST_ACTIVE, Metrics.SPECDECODE_ROLLBACK_BURST_ACTIVE)
"""Metrics of what goes on now. They are observed rather than added to, so that the child of a fork can drop them."""

_made: weakref.WeakKeyDictionary[MeterProvider, Instruments] = weakref.WeakKeyDictionary()
_making = threading.Lock()


class Instruments:
    """One instrument for each metric of the registry that this library emits, and what belongs to their time series.

    Attributes:
        tenants: The tenants that metrics tell apart.
        collecting: Called when metrics are collected, on the collecting thread.
    """

    def __init__(self, provider: MeterProvider, watch: Watch) -> None:
        """Make every instrument.

        Args:
            provider: Takes the points.
            watch: Watches the machine and the process that its host metrics tell of.
        """
        self._watch = watch
        meter = provider.get_meter(SCOPE, __version__, SCHEMA_URL)
        self._levels: dict[str, dict[LabelKey, tuple[Labels, int]]] = {metric.name: {} for metric in LEVELS}
        self.tenants = TenantLabels()
        self.collecting: Callable[[], None] | None = None
        self._configurations: dict[LabelKey, Labels] = {}
        self._seen: set[LabelKey] = set()
        self._told: set[str] = set()
        self._thinners: dict[tuple[str, LabelKey], Thinner] = {}
        self._made: dict[str, Any] = {}
        observers: dict[Metric, Observer] = {
            **host_observers(watch),
            **guard_observers(),
            **{metric: partial(self._observe_level, metric.name) for metric in LEVELS},
            Metrics.SPECDECODE_CONFIG_INFO: self._observe_configurations,
        }
        for metric in _own_metrics():
            if metric in observers:
                _observe(meter, metric, observers[metric])
            elif metric.instrument == "histogram":
                self._made[metric.name] = meter.create_histogram(
                    metric.name, metric.unit, metric.brief, explicit_bucket_boundaries_advisory=metric.buckets
                )
            else:
                self._made[metric.name] = meter.create_counter(metric.name, metric.unit, metric.brief)

    def add(self, metric: Metric, amount: int, labels: Labels, context: Context) -> None:
        """Add to a counter."""
        self._made[metric.name].add(amount, labels, context)

    def record(self, metric: Metric, value: float, labels: Mapping[str, str | int], context: Context) -> None:
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

    def first_told(self, manifest_id: str) -> bool:
        """Return whether a manifest was not told of yet in this process, and remember it."""
        new = manifest_id not in self._told
        self._told.add(manifest_id)
        return new

    def change(self, metric: Metric, labels: Labels, amount: int) -> None:
        """Count in or out what goes on: one of `LEVELS`."""
        level, key = self._levels[metric.name], key_of(labels)
        level[key] = (labels, level.get(key, (labels, 0))[1] + amount)

    def forget_what_goes_on(self) -> None:
        """In the child of a fork: what goes on in its parent does not go on here."""
        for level in self._levels.values():
            level.clear()
        self._configurations.clear()
        self._told.clear()

    def configure(self, key: LabelKey, labels: Labels) -> None:
        """Remember what a configuration runs under now; beyond a number the one that ran longest ago is forgotten."""
        self._configurations.pop(key, None)
        self._configurations[key] = labels
        if len(self._configurations) > thresholds()["labels"]["configurations"]:
            self._configurations.pop(next(iter(self._configurations)), None)

    def _observe_configurations(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(1, labels) for labels in list(self._configurations.values())] if self._watch.goes_on else []

    def _observe_level(self, metric: str, _: CallbackOptions) -> Iterable[Observation]:
        if self.collecting is not None:
            self.collecting()
        return [Observation(count, labels) for labels, count in list(self._levels[metric].values())]


def instruments_of(provider: MeterProvider, watch: Watch = watch) -> Instruments:
    """Return the instruments of a meter provider, the same ones every time, of the machine of the first."""
    with _making:
        instruments = _made.get(provider)
        if instruments is None:
            instruments = _made[provider] = Instruments(provider, watch)
        return instruments


def _forget_parents_requests() -> None:
    """In the child of a fork: its parent's requests are not active here, and nobody holds its locks."""
    global _making
    _making = threading.Lock()
    for instruments in list(_made.values()):
        instruments.forget_what_goes_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_requests)


def _own_metrics() -> list[Metric]:
    metrics = (value for value in vars(Metrics).values() if isinstance(value, Metric))
    return [metric for metric in metrics if metric.emitted_by == "library"]


def _observe(meter: Meter, metric: Metric, observer: Observer) -> None:
    create = {
        "counter": meter.create_observable_counter,
        "updowncounter": meter.create_observable_up_down_counter,
        "gauge": meter.create_observable_gauge,
    }[metric.instrument]
    create(metric.name, [observer], metric.unit, metric.brief)
