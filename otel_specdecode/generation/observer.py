"""The protocol between the engines' hooks, which fill a generation, and whoever records it."""

from __future__ import annotations

from typing import Protocol

from otel_specdecode.generation.record import Ending, Facts
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.timeline import Stretch


class Content:
    """Prompt and completion text, kept only where the user opted in."""

    __slots__ = ("completion", "prompt")

    def __init__(self) -> None:
        """Start empty."""
        self.prompt: str | None = None
        self.completion: list[str] = []


class Recording(Protocol):
    """One generation being recorded. No method blocks, none raises for a telemetry fault."""

    def progress(self, stretch: Stretch, facts: Facts) -> None:
        """Take a run of tokens while the stream goes on."""

    def finish(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None) -> None:
        """Take the last run of tokens and how the stream ended. Called once, maybe inside garbage collection."""

    def child(self) -> Ticket:
        """Return a ticket for one prompt of the batch that this recording stands for."""


class Ticket(Protocol):
    """Leave to record one generation, taken at the call: it remembers the caller's context."""

    @property
    def captures_content(self) -> bool:
        """Whether the user opted in to prompt and completion text."""

    def begin(self, request: Request, began: int) -> Recording:
        """Begin at the first resume, on the generating thread; began is that clock reading (ns)."""


class Observer(Protocol):
    """What an engine's hooks know of telemetry."""

    def admit(self) -> Ticket | None:
        """Return a ticket for a call made now; None if nobody is listening."""


class Relay:
    """An observer that can be exchanged: wrappers that a program imported once always find the one of the moment.

    Attributes:
        observer: Who records; None while nobody does.
    """

    def __init__(self) -> None:
        """Start with nobody."""
        self.observer: Observer | None = None

    def admit(self) -> Ticket | None:
        """Return the observer's ticket, None without an observer."""
        return None if self.observer is None else self.observer.admit()
