"""What the guard knows of each scope, engine, model and method: a lane of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from otel_specdecode.generation.plan import Ask
from otel_specdecode.generation.record import Record
from otel_specdecode.generation.transition import Lane
from otel_specdecode.guard.baseline import Conditions
from otel_specdecode.guard.breaker import Breaker
from otel_specdecode.guard.windows import Closed, RequestWindow, RoundWindow

_OUT_OF_MEMORY = frozenset(("MemoryError",))
_NOT_THE_ENGINES = frozenset(("KeyboardInterrupt", "SystemExit", "GeneratorExit", "asyncio.exceptions.CancelledError"))

Make = Callable[[Lane, "int | None", float], "LaneState"]


class Failures:
    """Failures in a row."""

    __slots__ = ("out_of_memory", "verifier_errors")

    def __init__(self) -> None:
        """Begin with none."""
        self.out_of_memory = 0
        self.verifier_errors = 0

    def take(self, record: Record, *, always: bool) -> Iterator[Closed]:
        """Take how a speculative request ended; yield what there is to judge.

        Args:
            record: The request.
            always: Whether a success is to be judged too, after successes alone.
        """
        name = record.ending.error_type if record.ending.kind == "error" else None
        if name in _NOT_THE_ENGINES:
            return
        before = self.out_of_memory + self.verifier_errors
        if name is None:
            self.out_of_memory = self.verifier_errors = 0
        elif name in _OUT_OF_MEMORY:
            self.out_of_memory += 1
        else:
            self.verifier_errors += 1
        if before or name is not None or always:
            failed = {"out_of_memory": float(self.out_of_memory), "verifier_error": float(self.verifier_errors)}
            yield Closed(failed, max(self.out_of_memory, self.verifier_errors, 1), 0.0)  # type: ignore[arg-type]


@dataclass(slots=True)
class LaneState:
    """One lane.

    Attributes:
        lane: Of whom.
        asked: The longest draft length that was asked for; None where the draft does not tell.
        breaker: Its rung.
        rounds: Rounds since the last full window.
        requests: Requests likewise.
        failures: Failures in a row.
        conditions: Those of its last request.
        trace_id: Of its last request that is sampled.
    """

    lane: Lane
    asked: int | None
    breaker: Breaker
    rounds: RoundWindow = field(default_factory=RoundWindow)
    requests: RequestWindow = field(default_factory=RequestWindow)
    failures: Failures = field(default_factory=Failures)
    conditions: Conditions | None = None
    trace_id: str | None = None

    def forget_rounds(self) -> None:
        """Begin a window of rounds."""
        self.rounds = RoundWindow()

    def forget_requests(self) -> None:
        """Begin a window of requests."""
        self.requests = RequestWindow()

    def forget(self) -> None:
        """Begin all windows: what they hold was decided by another rung."""
        self.forget_rounds()
        self.forget_requests()

    def saved(self, now: float) -> dict[str, object]:
        """Return what a restart must not forget."""
        lane = self.lane
        names = {key: getattr(lane, key) for key in ("scope", "key", "provider", "model", "method")}
        return {**names, "asked": self.asked, "breaker": self.breaker.saved(now)}


class Lanes:
    """The lanes that are known, those used longest ago first. Not for several threads."""

    def __init__(self, most: int) -> None:
        """Begin with none.

        Args:
            most: Lanes that are kept. Of more, the one used longest ago is forgotten, of those closed as long as there
                are any.
        """
        self._most = most
        self._lanes: OrderedDict[Lane, LaneState] = OrderedDict()

    def find(self, lane: Lane, ask: Ask, make: Make, now: float) -> LaneState:
        """Return the lane of a request, made where there is none."""
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = make(lane, ask.draft_length, now)
            self._make_room()
        else:
            self._lanes.move_to_end(lane)
        return found

    def get(self, lane: Lane) -> LaneState | None:
        """Return a lane, None where it is not known (any more)."""
        return self._lanes.get(lane)

    def all(self) -> list[LaneState]:
        """Return all lanes."""
        return list(self._lanes.values())

    def restore(self, saved: Any, make: Make, now: float) -> None:
        """Make the lanes that were saved.

        Raises:
            Exception: Of whatever kind, if they were not saved by saved().
        """
        for each in saved:
            lane = Lane(each["scope"], each["key"], each["provider"], each["model"], each["method"])
            found = make(lane, each["asked"], now)
            found.breaker.restore(each["breaker"], now)
            self._lanes[lane] = found
            self._make_room()

    def _make_room(self) -> None:
        if len(self._lanes) <= self._most:
            return
        newest = next(reversed(self._lanes))
        closed = (lane for lane, state in self._lanes.items() if state.breaker.state == "closed" and lane != newest)
        del self._lanes[next(closed, next(iter(self._lanes)))]
