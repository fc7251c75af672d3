"""An observer that folds what it gets on the spot, without OpenTelemetry and without a thread."""

from __future__ import annotations

from otel_specdecode.generation.observer import Content, HttpRequest, Recording, Ticket
from otel_specdecode.generation.plan import NOBODY
from otel_specdecode.generation.record import Ending, Facts, Record, build_record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta, Tally
from otel_specdecode.generation.timeline import Stretch


class Folded:
    """A recording that folds at once.

    Attributes:
        deltas: What each stretch added.
        endings: How it ended; one, unless a hook is wrong.
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

    def progress(self, stretch: Stretch, _: Facts) -> None:
        """Fold a stretch."""
        self.deltas.append(self.tally.add(stretch))

    def end_segment(self, stretch: Stretch, facts: Facts, last_pass_finished: bool, held_until: int | None) -> None:
        """Fold the rest of one completion."""
        self.progress(stretch, facts)
        self.deltas.append(self.tally.end_segment(finished=last_pass_finished, held_until=held_until))

    def finish(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None) -> None:
        """Fold the rest and build the record."""
        self.end_segment(stretch, facts, ending.last_pass_finished, None if ending.kind == "complete" else ending.at)
        self.endings.append(ending)
        self.content = content
        self.record = build_record(self.request, self.tally, facts, ending, self.began)

    def child(self) -> Ticket:
        """Prompts of a batch are not folded."""
        raise NotImplementedError


class FoldingObserver:
    """Admits every call.

    Attributes:
        captures_content: Whether prompts and completions are handed over.
        who: On whose behalf every call is made.
        recordings: In the order they began.
    """

    def __init__(self, captures_content: bool = False) -> None:
        """Start with no recording."""
        self.captures_content = captures_content
        self.who = NOBODY
        self.recordings: list[Folded] = []

    def admit(self) -> Ticket:
        """Admit a call."""
        return self

    def serve(self, _: HttpRequest) -> None:
        """Take no note of HTTP."""

    def begin(self, request: Request, began: int, ago: int) -> Recording:  # noqa: ARG002 - a fold has no time of day
        """Begin a recording."""
        self.recordings.append(Folded(request, began))
        return self.recordings[-1]

    @property
    def records(self) -> list[Record]:
        """The finished records, in the order they began."""
        return [each.record for each in self.recordings if each.record is not None]

    @property
    def record(self) -> Record:
        """The record of the one recording; ValueError where there is not one, finished."""
        (recording,) = self.recordings
        if recording.record is None:
            raise ValueError("the recording has not ended")
        return recording.record
