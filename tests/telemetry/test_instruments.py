"""Which instruments there are."""

from __future__ import annotations

from typing import Any

from opentelemetry.metrics import Meter, NoOpMeter, NoOpMeterProvider

from otel_specdecode.telemetry.instruments import instruments_of
from otel_specdecode.telemetry.names import Metric, Metrics


class _Noting(NoOpMeter):
    """A meter that notes what is made."""

    def __init__(self, made: list[str]) -> None:
        super().__init__("noting")
        self._made = made

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("create_"):
            return super().__getattribute__(name)

        def create(name: str, *_: Any, **__: Any) -> None:
            self._made.append(name)

        return create


class _Provider(NoOpMeterProvider):
    def __init__(self) -> None:
        self.made: list[str] = []

    def get_meter(self, *_: Any, **__: Any) -> Meter:
        return _Noting(self.made)


def test_there_is_one_instrument_for_each_metric_that_this_library_emits_and_none_for_those_of_the_collector() -> None:
    provider = _Provider()
    instruments_of(provider)
    declared = [metric for metric in vars(Metrics).values() if isinstance(metric, Metric)]
    assert sorted(provider.made) == sorted(metric.name for metric in declared if metric.emitted_by == "library")
    assert len(provider.made) < len(declared)
