"""What the guard knows of each scope, engine, model and method: a lane of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from otel_specdecode.generation.record import Record
from otel_specdecode.generation.transition import Lane
from otel_specdecode.guard.baseline import Conditions
from otel_specdecode.guard.breaker import Breaker
from otel_specdecode.guard.service import Mark
from otel_specdecode.guard.windows import Closed, RequestWindow, RoundWindow, Values

_OUT_OF_MEMORY = "MemoryError"
"""How the names of such errors end: NumPy has one of its own."""

_NOT_THE_ENGINES = frozenset(
    (
        "KeyboardInterrupt",
        "SystemExit",
        "GeneratorExit",
        "InterruptedError",
        "TimeoutError",
        "ConnectionError",
        "BrokenPipeError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "ConnectionResetError",
    )
)
"""Of those that are built in: an end that somebody wished, or a client that went away."""
_ENGINES = frozenset(("mlx", "mlx_lm", "llama_cpp", "numpy", "ctypes"))
"""Packages whose classes are the engines' too; llama.cpp is called through ctypes."""
_THE_CALLERS = frozenset(("ValueError", "TypeError"))
"""Before the first token: a prompt that is too long, an argument that does not exist."""

_LANE = ("scope", "key", "provider", "model", "method")

Names = tuple["str | None", ...]
"""What makes a lane, in the order of its fields."""

Make = Callable[[Lane, "int | None", float], "LaneState"]


class Failures:
    """Failures since the last request that went well."""

    __slots__ = ("out_of_memory", "verifier_errors")

    def __init__(self) -> None:
        """Begin with none."""
        self.out_of_memory = 0
        self.verifier_errors = 0

    def take(self, record: Record, *, always: bool) -> Closed | None:
        """Take how a speculative request ended; return what there is to judge.

        Args:
            record: The request.
            always: Whether a success is to be judged too, after successes alone.
        """
        before = self.out_of_memory + self.verifier_errors
        name = record.ending.error_type if record.ending.kind == "error" else None
        if name is None and not before and not always:
            return None
        if name is None or name in _THE_CALLERS:
            if not record.counts.tokens:
                return None
        elif not _is_the_engines(name):
            return None
        if name is None:
            self.out_of_memory = self.verifier_errors = 0
        elif name.endswith(_OUT_OF_MEMORY):
            self.out_of_memory += 1
        else:
            self.verifier_errors += 1
        values: Values = {"out_of_memory": float(self.out_of_memory), "verifier_error": float(self.verifier_errors)}
        return Closed(values, max(self.out_of_memory, self.verifier_errors, 1), 0.0)


def proposed_of(record: Record) -> int | None:
    """Return how many tokens the draft of a request proposed, None where that says nothing of it.

    Prompt lookup costs nothing where it proposes none, and a request of one token ends before the draft is asked: it
    has no pass after the prompt's.
    """
    counts = record.counts
    proposed = counts.proposed
    asked = proposed or counts.draft_calls or counts.plain_passes
    return proposed if asked and record.request.method != "prompt_lookup" else None


def _is_the_engines(name: str) -> bool:
    """Return whether an error of a class is the engine's, not one that the program raises in the middle of a request.

    Args:
        name: Of the class; one that is not built in has its module before it.
    """
    package, dot, _ = name.partition(".")
    if name.endswith(_OUT_OF_MEMORY):
        return True
    return package in _ENGINES if dot else name not in _NOT_THE_ENGINES


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
        trace_id: Of the last request in its windows that is sampled.
        mark: Output of the service when its window of requests began.
        suspects: Kinds of windows of which the last one looked bad, as far as it was comparable.
        lacks_baseline: Whether its windows of requests have no baseline, as told last.
        windows_otherwise: Those in a row that say otherwise.
    """

    lane: Lane
    asked: int | None
    breaker: Breaker
    rounds: RoundWindow = field(default_factory=RoundWindow)
    requests: RequestWindow = field(default_factory=RequestWindow)
    failures: Failures = field(default_factory=Failures)
    conditions: Conditions | None = None
    trace_id: str | None = None
    mark: Mark = field(default_factory=dict)
    suspects: set[str] = field(default_factory=set)
    lacks_baseline: bool = False
    windows_otherwise: int = 0

    @property
    def names(self) -> Names:
        """What makes the lane."""
        lane = self.lane
        return (lane.scope, lane.key, lane.provider, lane.model, lane.method)

    def forget_rounds(self) -> None:
        """Begin a window of rounds."""
        self.rounds = RoundWindow()

    def forget_requests(self, mark: Mark) -> None:
        """Begin a window of requests, with the output of the service until now."""
        self.requests = RequestWindow()
        self.mark = mark

    def forget(self, mark: Mark) -> None:
        """Begin all windows: what they hold was decided by another rung."""
        self.forget_rounds()
        self.forget_requests(mark)
        self.trace_id = None

    def saved(self, now: float) -> dict[str, object]:
        """Return what a restart must not forget."""
        lane = self.lane
        names = {key: getattr(lane, key) for key in _LANE}
        return {**names, "asked": self.asked, "breaker": self.breaker.saved(now)}


class Lanes:
    """The lanes that are known. Not for several threads."""

    def __init__(self, most: int) -> None:
        """Begin with none.

        Args:
            most: Lanes that are kept. Of more, the one used longest ago is forgotten, of those closed as long as there
                are any.
        """
        self._most = most
        self._lanes: OrderedDict[Names, LaneState] = OrderedDict()
        self._spared: OrderedDict[Names, LaneState] = OrderedDict()
        """Lanes that were due to be forgotten when they were not closed: nobody looks through them again and again."""

    def find(self, names: Names, asked: int | None, make: Make, now: float) -> LaneState:
        """Return the lane of a request that asks for a draft length, made where there is none."""
        found = self._lanes.get(names)
        if found is not None:
            self._lanes.move_to_end(names)
            return found
        found = self._spared.pop(names, None) or make(Lane(*names), asked, now)  # type: ignore[arg-type]
        self._lanes[names] = found
        self._make_room()
        return found

    def get(self, names: Names) -> LaneState | None:
        """Return a lane, None where it is not known (any more)."""
        return self._lanes.get(names) or self._spared.get(names)

    def all(self) -> list[LaneState]:
        """Return all lanes."""
        return [*self._spared.values(), *self._lanes.values()]

    def restore(self, saved: object, make: Make, now: float) -> None:
        """Make the lanes that were saved, in place of those of the same name.

        Raises:
            ValueError: They were not saved by saved(); nothing is changed.
        """
        if not isinstance(saved, list):
            raise ValueError("no saved lanes")
        for found in [_restored(each, make, now) for each in saved]:
            replaced = self.get(found.names)
            # What runs already was not decided by the rung of then.
            found.breaker.changes = 1 if replaced is None else replaced.breaker.changes + 1
            self._spared.pop(found.names, None)
            self._lanes[found.names] = found
            self._make_room()

    def _make_room(self) -> None:
        while len(self._lanes) + len(self._spared) > self._most:
            names, state = next(iter(self._lanes.items()))
            if len(self._lanes) == 1:
                (self._spared or self._lanes).popitem(last=False)
            elif state.breaker.state == "closed":
                del self._lanes[names]
            else:
                self._spared[names] = self._lanes.pop(names)


def _restored(saved: object, make: Make, now: float) -> LaneState:
    """Return a lane that was saved.

    Raises:
        ValueError: It was not.
    """
    if not isinstance(saved, dict):
        raise ValueError("not a saved lane")
    names, asked = [saved.get(key) for key in _LANE], saved.get("asked")
    scope = saved.get("scope")
    if scope not in ("process", "tenant", "session") or any(type(each) not in (str, type(None)) for each in names):
        raise ValueError("not a saved lane")
    if not (asked is None or (type(asked) is int and asked > 0)):
        raise ValueError("a saved lane of an unknown draft length")
    found = make(Lane(*names), asked, now)  # type: ignore[arg-type]
    found.breaker.restore(saved.get("breaker"), now)
    return found
