"""What a receiver has of one service: the last value of each series."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.otlp_receiver import Received

Series = dict[tuple[tuple[str, str], ...], float]


def _value(pair: Any) -> str:
    kind = pair.value.WhichOneof("value")
    return str(getattr(pair.value, kind))


def _of_service(received: Received, service: str) -> Iterator[Any]:
    """The metrics of a service, in the order in which they came."""
    for request in list(received.requests.get("/v1/metrics", ())):
        for resource in request.resource_metrics:
            if {pair.key: _value(pair) for pair in resource.resource.attributes}["service.name"] == service:
                for scope in resource.scope_metrics:
                    yield from scope.metrics


def series(received: Received, service: str, metric: str) -> Series:
    """The last value of each series of a metric; of a histogram the count of its values."""
    found: Series = {}
    for each in _of_service(received, service):
        if each.name == metric:
            for point in getattr(each, each.WhichOneof("data")).data_points:
                labels = tuple(sorted((pair.key, _value(pair)) for pair in point.attributes))
                kind = point.WhichOneof("value") if "value" in point.DESCRIPTOR.oneofs_by_name else "count"
                found[labels] = getattr(point, kind)
    return found


def values(received: Received, service: str, metric: str) -> list[float]:
    """Every value that a metric ever had, in the order in which they came."""
    return [
        getattr(point, point.WhichOneof("value"))
        for each in _of_service(received, service)
        if each.name == metric
        for point in getattr(each, each.WhichOneof("data")).data_points
    ]


def names(received: Received, service: str) -> set[str]:
    """The metrics of a service."""
    return {each.name for each in _of_service(received, service)}


def total(found: Series, **labels: str) -> float:
    """The sum over the series with these labels, whose names have underscores for dots."""
    wanted = {(name.replace("_", "."), value) for name, value in labels.items()}
    return sum(
        value for key, value in found.items() if wanted <= {(name.replace("_", "."), each) for name, each in key}
    )
