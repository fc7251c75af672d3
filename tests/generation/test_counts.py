"""Counts of rounds and tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.generation.counts import POSITIONS, ContradictionError, Counts
from tests.edge_table import EDGES, Edge


@pytest.mark.parametrize("edge", [edge for edge in EDGES if edge.draft], ids=lambda edge: edge.name)
def test_a_round_counts_as_the_edge_table_says(edge: Edge) -> None:
    """Each row of the edge table gives its accepted, rejected and unverified tokens and its outcome."""
    counts = Counts(tokens=len(edge.emitted))
    counts.add_round(len(edge.draft), len(edge.emitted), edge.finished)
    assert (counts.accepted, counts.rejected, counts.unverified) == (edge.accepted, edge.rejected, edge.unverified)
    assert edge.outcome is not None
    assert getattr(counts, edge.outcome) == 1
    assert counts.rounds == 1
    counts.verify()


def test_the_worked_example() -> None:
    """[2, 3, 1, 4, 2, 0, 3, 3] accepted at k = 4: 8 rounds, 18 accepted, acceptance length 3.25."""
    counts = Counts(tokens=26)
    for accepted in (2, 3, 1, 4, 2, 0, 3, 3):
        counts.add_round(4, accepted + 1, True)
    counts.verify()
    assert (counts.rounds, counts.accepted, counts.rejected) == (8, 18, 14)
    assert counts.acceptance_length == 3.25
    assert counts.accept_rate == 18 / 32
    assert counts.rollbacks == 7
    assert counts.proposed_by_position[:5] == [8, 8, 8, 8, 0]
    assert counts.accepted_by_position[:5] == [7, 6, 4, 1, 0]


def test_ratios_are_absent_where_there_is_nothing_to_divide() -> None:
    """Without a compared token there is no accept rate, without a round no acceptance length; never 0."""
    assert Counts().accept_rate is None
    assert Counts().acceptance_length is None


def test_positions_from_16_on_are_folded() -> None:
    """A draft of 20 tokens counts once at each of the first 16 positions and 4 times at the last."""
    counts = Counts()
    counts.add_round(20, 21, True)
    assert counts.proposed_by_position == [1] * 16 + [4]
    assert len(counts.accepted_by_position) == POSITIONS


@pytest.mark.parametrize(
    ("proposed", "emitted", "finished"), [(4, 6, True), (4, 5, False), (4, 0, True), (0, 2, False), (2, -1, False)]
)
def test_a_round_that_cannot_be_is_refused(proposed: int, emitted: int, finished: bool) -> None:
    """More tokens than a pass can hold, or a finished round without its token, contradict themselves."""
    with pytest.raises(ContradictionError):
        Counts().add_round(proposed, emitted, finished)


@pytest.mark.parametrize(
    "counts",
    [
        Counts(tokens=-1),
        Counts(accepted=1, tokens=1),
        Counts(tokens=5, plain_passes=2, prefill_tokens=1),
        Counts(tokens=0, prefill_tokens=1),
        Counts(tokens=1, all_rejected=2, rejected=2, proposed_by_position=[2] + [0] * 16),
    ],
    ids=["negative", "positions", "too few passes", "prefill token not emitted", "rounds without tokens"],
)
def test_counts_that_do_not_add_up_are_refused(counts: Counts) -> None:
    """Building a record from contradictory counts raises."""
    with pytest.raises(ContradictionError):
        counts.verify()


ROUNDS = st.lists(
    st.integers(1, 24).flatmap(lambda proposed: st.tuples(st.just(proposed), st.integers(0, proposed), st.booleans())),
    max_size=40,
)


@given(ROUNDS)
def test_identities_hold_for_any_rounds(rounds: list[tuple[int, int, bool]]) -> None:
    """Proposed = accepted + rejected + unverified, positions and outcomes add up, and parts add to the whole."""
    whole, parts = Counts(), []
    for proposed, accepted, finished in rounds:
        emitted = accepted + finished
        part = Counts(tokens=emitted)
        part.add_round(proposed, emitted, finished)
        parts.append(part)
        whole.tokens += emitted
        whole.add_round(proposed, emitted, finished)
    whole.verify()
    assert whole.proposed == sum(proposed for proposed, _, _ in rounds)
    assert whole.rounds == len(rounds)
    assert whole.tokens == whole.accepted + whole.finished_rounds
    summed = Counts()
    for part in parts:
        summed.add(part)
    assert summed == whole


def test_unknown_draft_passes_stay_unknown() -> None:
    """A custom draft's passes are absent, and a sum with an absent part is absent."""
    counts = Counts(draft_passes=3)
    counts.add(Counts(draft_passes=None))
    assert counts.draft_passes is None
