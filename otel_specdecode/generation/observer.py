"""The protocol between the engines' hooks, which fill a generation, and whoever records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.plan import AS_ASKED, Ask, Plan, Who, chosen, planner
from otel_specdecode.generation.record import Ending, Facts
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.timeline import Stretch

MessagePart = Mapping[str, object]
"""A part of a message as the GenAI conventions have it: `{"type": "text", "content": ...}`, a tool call, and so on."""


class Message(NamedTuple):
    """One message of a prompt."""

    role: str
    parts: tuple[MessagePart, ...]


def text_part(text: str) -> MessagePart:
    """Return text as a part of a message."""
    return {"type": "text", "content": text}


class Content:
    """Prompt and completion, kept only where the user opted in.

    Attributes:
        prompt: The messages of the prompt, None as long as it could not be read.
        completion: The text so far, in pieces.
        tool_calls: Tool calls of the completion.
    """

    __slots__ = ("completion", "prompt", "tool_calls")

    def __init__(self) -> None:
        """Start empty."""
        self.prompt: tuple[Message, ...] | None = None
        self.completion: list[str] = []
        self.tool_calls: list[MessagePart] = []


class AllocatorMemory(NamedTuple):
    """Memory of an engine's own allocator, in bytes.

    Attributes:
        active: Held by arrays that are alive.
        cache: Freed by arrays and kept for the next ones; not part of active.
        peak: Most that arrays held at once since the process began or the program reset it.
    """

    active: int
    cache: int
    peak: int


class Recording(Protocol):
    """One generation being recorded. No method blocks, none raises for a telemetry fault."""

    def progress(self, stretch: Stretch, facts: Facts) -> None:
        """Take a run of tokens while the stream goes on."""

    def end_segment(self, stretch: Stretch, facts: Facts, last_pass_finished: bool, held_until: int | None) -> None:
        """Take the last run of tokens of one completion among several. Called maybe inside garbage collection.

        Args:
            stretch: The tokens.
            facts: What is known by now.
            last_pass_finished: Whether the last emitted token is the target's own (correction or bonus).
            held_until: Clock reading (ns) until which the consumer held the last token, None if it did not.
        """

    def finish(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None) -> None:
        """Take the last run of tokens and how the stream ended. Called once, maybe inside garbage collection."""

    def child(self) -> Ticket:
        """Return a ticket for one prompt of the batch that this recording stands for."""


class Ticket(Protocol):
    """Leave to record one generation, taken at the call: it remembers the caller's context."""

    @property
    def captures_content(self) -> bool:
        """Whether the user opted in to prompt and completion text."""

    @property
    def who(self) -> Who:
        """On whose behalf the call was made."""

    def begin(self, request: Request, began: int, ago: int) -> Recording:
        """Begin to record, on the generating thread.

        Args:
            request: What was asked for.
            began: Clock reading (ns) of the first resume.
            ago: How long ago (ns) that was: what it took to read the request.
        """


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of an HTTP request that an engine's own server begins to serve.

    Attributes:
        method: As the client sent it, empty if the request is none.
        path: Without query, fragment, and what comes before it in a whole URL; empty if there is none.
        route: The pattern that the server serves the path by, None if it has none.
        version: Version of HTTP, such as `1.1`; empty if unknown.
        headers: Values by lower-case name; several of one name are joined by commas.
        peer: Address and port of the other end of the connection, None if unknown.
        local: Address and port that it was made to, None if unknown.
    """

    method: str
    path: str
    route: str | None
    version: str
    headers: Mapping[str, str] = field(repr=False)
    peer: tuple[str, int] | None = None
    local: tuple[str, int] | None = None


class Exchange(Protocol):
    """One HTTP request being served. Until it is finished, calls on its thread are admitted under it."""

    def finish(self, status: int | None, failure: str | None, went_away: bool) -> None:
        """Note that it was answered; on the thread that began it, once. Never raises.

        Args:
            status: Of the answer, None if none was begun.
            failure: Qualified name of the exception class that ended it, None if none did.
            went_away: The exception tells that the client is gone.
        """


class Observer(Protocol):
    """What an engine's hooks know of telemetry."""

    def admit(self) -> Ticket | None:
        """Return a ticket for a call made now; None if nobody is listening."""

    def serve(self, request: HttpRequest) -> Exchange | None:
        """Begin to record an HTTP request on the thread that serves it; None if nobody is to hear of it."""


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
        try:
            return None if self.observer is None else self.observer.admit()
        except Exception as error:
            report_fault("a call could not be recorded", error)
            return None

    def plan(self, ticket: Ticket, ask: Callable[[Who], Ask]) -> Plan:
        """Return how a request is to run: as its program chose, else as whoever plans decides.

        Args:
            ticket: Leave to record it.
            ask: Reads what it asks for; called only where somebody plans.
        """
        plan, plans = chosen(), planner()
        if plan is not None or plans is None:
            return AS_ASKED if plan is None else plan
        try:
            return plans.plan(ask(ticket.who))
        except Exception as error:
            report_fault("a request could not be planned and runs as asked", error)
            return AS_ASKED

    def serve(self, request: HttpRequest) -> Exchange | None:
        """Return the observer's record of an HTTP request that begins to be served, None without one."""
        try:
            return None if self.observer is None else self.observer.serve(request)
        except Exception as error:
            report_fault("an HTTP request could not be recorded", error)
            return None

    def anyone_listens(self) -> bool:
        """Return whether a call made now would be recorded; an observer may begin to watch the machine then."""
        return self.admit() is not None
