"""The arithmetic of docs/growing.md is that of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_specdecode.generation.request import Request
from otel_specdecode.telemetry.host_metrics import host_observers, watch
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.fake import FakeClock, Script, accepted_rounds, fake_stream

pytestmark = pytest.mark.source

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "growing.md").read_text()
SHORT, MID, LONG = 16, 2_000, 5_000
A_COMBINATION, ITS_PARTS = 168, 358

Served = tuple[Script, Request | None]


def plain(prompt: int = SHORT, cohort: str = "normal") -> Served:
    request = Request("text_completion", "mlx", "target", cohort=cohort)  # type: ignore[arg-type]
    return Script(tokens=50, prompt_tokens=prompt), request


def speculative(prompt: int = SHORT, k: int = 4) -> Served:
    return Script(rounds=accepted_rounds((2, 1) * 20, k), prompt_tokens=prompt), None


def series(*served: Served) -> int:
    """How many series Prometheus gets of a process, those of machine and process left out."""
    telemetry = Telemetry()
    try:
        observer = telemetry.listener()
        for script, request in served:
            list(fake_stream(observer, script, FakeClock(), request))
        host = {metric.name for metric in host_observers(watch)}
        return sum(
            len(getattr(point, "bucket_counts", ())) + 2 if hasattr(point, "bucket_counts") else 1
            for resource in telemetry.metrics_data().resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name not in host
            for point in metric.data.data_points
        )
    finally:
        telemetry.shutdown()


def predicted(combinations: int, *draft_lengths: int) -> int:
    return A_COMBINATION * combinations + sum(ITS_PARTS + 2 * max(k, 1) for k in draft_lengths)


ALL_TIERS = (SHORT, MID, LONG)


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ([plain()], predicted(1, 0)),
        ([plain(), speculative()], predicted(2, 0, 4)),
        ([plain(), speculative(), speculative(k=2)], predicted(2, 0, 4, 2)),
        ([each(prompt) for prompt in ALL_TIERS for each in (plain, speculative)], predicted(2, *(0, 4) * 3)),
        (
            [each(prompt) for prompt in ALL_TIERS for each in (plain, speculative)]
            + [plain(prompt, "control") for prompt in ALL_TIERS],
            predicted(2, *(0, 4, 0) * 3),
        ),
    ],
    ids=["plain", "both", "two lengths", "three tiers", "three tiers and control"],
)
def test_series_are_as_many_as_the_page_says(served: list[Served], expected: int) -> None:
    assert series(*served) == expected


def test_the_page_says_these_numbers() -> None:
    host = int(re.search(r"(\d+) for machine and process", PAGE)[1])  # type: ignore[index]
    assert f"+ {A_COMBINATION} for each combination" in PAGE
    assert f"+ {ITS_PARTS} + 2 x max(k, 1)" in PAGE
    told = [int(number.replace(",", "")) for number in re.findall(r"^\| [^|]+ \| ([\d,]+) \|$", PAGE, re.MULTILINE)]
    assert told == [
        host + predicted(1, 0),
        host + predicted(2, 0, 4),
        host + predicted(2, *(0, 4) * 3),
        host + predicted(2, *(0, 4, 0) * 3),
    ]
