"""Tells in their order of transitions and of what scopes are held against; has memory freed where no request waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from otel_specdecode.generation.comparison import BaselineChange, Standing
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.transition import Lane, Transition
from otel_specdecode.guard.baseline import Conditions
from otel_specdecode.guard.breaker import Change
from otel_specdecode.guard.policy import Policy

Tell = Callable[[Transition], None]
TellBaseline = Callable[[BaselineChange], None]

_Told = TypeVar("_Told", Transition, BaselineChange)

UNLOADED = "unloaded"

Unloaded = tuple[int, "str | None"]


class Telling:
    """What is to be told, and to whom: they may call the guard, and may take their time.

    Attributes:
        unloaded: How often it was decided to free the drafts' memory, and why the last time.
    """

    def __init__(
        self, policy: Policy, tell: Iterable[Tell], tell_baseline: Iterable[TellBaseline], wall: Callable[[], int]
    ) -> None:
        """Begin with nothing to tell.

        Args:
            policy: The rules.
            tell: Called with each transition.
            tell_baseline: Called each time that a scope loses its baseline or finds one.
            wall: Time of day, ns since the epoch.
        """
        self._digest = policy.digest
        self._observes = policy.mode == "observe_only"
        self._tell = list(tell)
        self._tell_baseline = list(tell_baseline)
        self._unload: list[Callable[[], None]] = []
        self._wall = wall
        self._waiting: deque[Callable[[], None]] = deque()
        self._frees = False
        self.unloaded: Unloaded = (0, None)
        self._lock = threading.Lock()

    @property
    def unloads(self) -> bool:
        """Whether there is a draft whose memory can be freed."""
        return bool(self._unload)

    def unload_with(self, unload: Callable[[], None]) -> None:
        """Call a function too, by free() after the rung was entered that frees memory."""
        self._unload.append(unload)

    def add(self, lane: Lane, change: Change, trace_id: str | None = None) -> None:
        """Have a change told by the next deliver(); takes no lock."""
        transition = Transition(
            self._wall(),
            lane,
            change.before,
            change.after,
            change.rung_before,
            change.rung_after,
            change.trigger,
            change.reason,
            change.value,
            change.threshold,
            change.samples,
            change.window_seconds,
            self._digest,
            self._observes,
            trace_id,
        )
        self._waiting.append(partial(_deliver, self._tell, transition))
        if change.rung_after == UNLOADED and not self._observes:
            self._frees = True
            self.unloaded = (self.unloaded[0] + 1, change.reason)

    def add_baseline(self, lane: Lane, conditions: Conditions, standing: Standing, requests: int) -> None:
        """Have it told likewise that a scope has lost its baseline or found one."""
        change = BaselineChange(
            self._wall(),
            lane,
            standing,
            conditions.operation,
            conditions.tier,
            int(conditions.band),
            conditions.power_mode,
            conditions.thermal_state,
            requests,
            self._digest,
            self._observes,
        )
        self._waiting.append(partial(_deliver, self._tell_baseline, change))

    def deliver(self) -> None:
        """Tell what waits. One thread does it for all; what others add meanwhile is told by it too."""
        while self._waiting and self._lock.acquire(blocking=False):
            try:
                while self._waiting:
                    self._waiting.popleft()()
            finally:
                self._lock.release()

    def free(self) -> None:
        """Have memory freed, if that was decided since the last time: it may take long."""
        if not self._frees:
            return
        self._frees = False
        for unload in self._unload:
            try:
                unload()
            except Exception as error:
                report_fault("a draft could not be unloaded", error)

    def renew(self) -> None:
        """In the child of a fork: what waits is the parent's."""
        self._lock = threading.Lock()
        self._waiting.clear()


def _deliver(tell: Iterable[Callable[[_Told], None]], told: _Told) -> None:
    for each in tell:
        try:
            each(told)
        except Exception as error:
            report_fault("something that the guard did could not be told", error)
