"""An observer that folds what it gets on the spot, for tests without OpenTelemetry."""

from __future__ import annotations

from otel_specdecode.generation.observer import Content, Recording, Ticket
from otel_specdecode.generation.record import Ending, Facts, Record, build_record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta, Tally
from otel_specdecode.generation.timeline import Stretch


class Folded:
    """A recording that folds at once.

    Attributes:
        deltas: What each stretch added.
        record: The finished record.
        content: What was captured.
    """

    def __init__(self, request: Request, began: int) -> None:
        """Begin."""
        self.request = request
        self.began = began
        self.tally = Tally(pass_entries=request.mode == "speculative")
        self.deltas: list[Delta] = []
        self.endings: list[Ending] = []
        self.record: Record | None = None
        self.content: Content | None = None

    def progress(self, stretch: Stretch, facts: Facts) -> None:
        """Fold a stretch."""
        self.deltas.append(self.tally.add(stretch))

    def end_segment(self, stretch: Stretch, facts: Facts, last_pass_finished: bool, held_until: int | None) -> None:
        """Fold the rest of one completion."""
        self.progress(stretch, facts)
        self.deltas.append(self.tally.end_segment(finished=last_pass_finished, held_until=held_until))

    def finish(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None) -> None:
        """Fold the rest and build the record."""
        self.progress(stretch, facts)
        held_until = None if ending.kind == "complete" else ending.at
        self.deltas.append(self.tally.end_segment(finished=ending.last_pass_finished, held_until=held_until))
        self.endings.append(ending)
        self.content = content
        self.record = build_record(self.request, self.tally, facts, ending, self.began)

    def child(self) -> Ticket:
        """Not needed here."""
        raise NotImplementedError


class FoldingObserver:
    """Admits every call.

    Attributes:
        recordings: In the order they began.
    """

    def __init__(self, captures_content: bool = False) -> None:
        """Start with no recording."""
        self.captures_content = captures_content
        self.recordings: list[Folded] = []

    def admit(self) -> Ticket:
        """Admit a call."""
        return self

    def begin(self, request: Request, began: int) -> Recording:
        """Begin a recording."""
        self.recordings.append(Folded(request, began))
        return self.recordings[-1]

    @property
    def record(self) -> Record:
        """The record of the one recording."""
        (recording,) = self.recordings
        assert recording.record is not None
        return recording.record
