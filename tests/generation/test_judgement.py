"""What finished counts say about a run."""

from __future__ import annotations

import pytest

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.judgement import context_tier, hazards_of
from otel_specdecode.testing.fake import Script, accepted_rounds, fake_request


@pytest.mark.parametrize(
    ("tokens", "tier"),
    [(None, "short"), (0, "short"), (1_024, "short"), (1_025, "mid"), (4_096, "mid"), (4_097, "long")],
)
def test_context_tiers(tokens: int | None, tier: str) -> None:
    """short <= 1,024 < mid <= 4,096 < long."""
    assert context_tier(tokens) == tier


def rounds(accepted: list[int], emitted_plain: int = 0) -> Counts:
    """Counts of finished rounds at k = 4 and of plain passes."""
    counts = Counts(plain_passes=emitted_plain)
    for each in accepted:
        counts.add_round(4, each + 1, True)
    return counts


SPECULATIVE = fake_request(Script(rounds=accepted_rounds([1], 4)))
AUTOREGRESSIVE = fake_request(Script(tokens=3))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (rounds([0] * 19), ()),
        (rounds([0] * 20), ("all_rejected",)),
        (rounds([0] * 30 + [1]), ()),
        (rounds([], emitted_plain=5), ("nothing_proposed",)),
        (Counts(), ()),
    ],
)
def test_hazards_of_a_speculative_run(counts: Counts, expected: tuple[str, ...]) -> None:
    """Nothing accepted in 20 finished rounds, or decode passes and nothing proposed; an empty run says nothing."""
    assert hazards_of(SPECULATIVE, counts) == expected


def test_an_autoregressive_run_has_none() -> None:
    """It proposes nothing by design."""
    assert hazards_of(AUTOREGRESSIVE, rounds([], emitted_plain=5)) == ()
