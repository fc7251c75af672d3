"""A draft that is loaded when it is needed and let go of when the guard says so."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.plan import Plan
from otel_specdecode.guard.telling import Unloaded

Draft = TypeVar("Draft")

IN_USE = 60.0
"""Seconds for which a draft counts as in use after it was asked for."""


class Drafts(Generic[Draft]):
    """The draft of a program, and a lighter one where it has one. Only this may hold them for long.

    One of the two is held: the other one is let go of before it is loaded. Where one is asked for again within a minute
    both are in use, as with tenants on different rungs, and both are held until one was not asked for in a minute.
    """

    def __init__(
        self,
        load: Callable[[], Draft],
        load_lighter: Callable[[], Draft] | None = None,
        *,
        freed: Callable[[], None] | None = None,
        unloaded: Callable[[], Unloaded] = lambda: (0, None),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load nothing yet.

        Args:
            load: Loads the draft.
            load_lighter: Loads one that takes less memory and time.
            freed: Called after drafts were let go of, to have an allocator give memory back.
            unloaded: How often it was decided to let go of them, and why the last time.
            clock: Seconds.
        """
        self._load = {False: load} if load_lighter is None else {False: load, True: load_lighter}
        self._loaded: dict[bool, Draft] = {}
        self._asked: dict[bool, float] = {}
        """When each was asked for last."""
        self._freed = freed
        self._unloaded = unloaded
        self._clock = clock
        self._unloads = 0
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_after_fork, weakref.ref(self)))

    def get(self, plan: Plan) -> Draft | None:
        """Return the draft for a request, None where it is to run without; the first call loads.

        What was let go of since the request was planned is not loaded for it again: it runs without then, and its plan
        says so from now on.

        Raises:
            Exception: Whatever loading raises.
        """
        if plan.autoregressive:
            return None
        lighter = plan.lighter and True in self._load
        found = self._find(lighter)
        if found:
            return found[0]
        with self._loading:
            found = self._find(lighter)
            if found:
                return found[0]
            if self._is_gone(plan):
                return None
            with self._lock:
                unloads = self._unloads
            draft = self._load[lighter]()
            with self._lock:
                if unloads == self._unloads:
                    self._loaded[lighter] = draft
                    return draft
            # It was let go of while it was loaded: nobody holds it but this request, if it was planned since.
            if not self._is_gone(plan):
                return draft
            del draft
        self._give_back()
        return None

    def unload(self) -> None:
        """Let go of the drafts: their memory is free as soon as no request runs with them.

        One that is being loaded meanwhile is let go of when it is loaded; nobody waits for that.
        """
        with self._lock:
            self._unloads += 1
            gone, self._loaded = self._loaded, {}
        del gone
        gc.collect()
        if self._freed is not None:
            self._freed()

    def _find(self, lighter: bool) -> tuple[Draft, ...]:
        """Take that one is asked for; return it, or nothing where it is not loaded. Let go of the other one in time."""
        gone: tuple[Draft, ...] = ()
        with self._lock:
            now = self._clock()
            found = (self._loaded[lighter],) if lighter in self._loaded else ()
            other = not lighter
            # One that is not loaded, and was not asked for lately, takes the place of the other one.
            last = self._asked.get(other if found else lighter)
            if other in self._loaded and (last is None or now - last > IN_USE):
                gone = (self._loaded.pop(other),)
            self._asked[lighter] = now
        if gone:
            del gone
            self._give_back()
        return found

    def _is_gone(self, plan: Plan) -> bool:
        """Return whether it was decided to let go of the drafts since a request was planned; its plan says so then."""
        unloads, reason = self._unloaded()
        if plan.unloads is None or plan.unloads == unloads:
            return False
        plan.keep_without(reason)
        return True

    def _give_back(self) -> None:
        """Have memory given back, whatever that raises: the request goes on."""
        try:
            gc.collect()
            if self._freed is not None:
                self._freed()
        except Exception as error:
            report_fault("the memory of a draft could not be given back", error)

    def _renew(self) -> None:
        """Begin with locks that nobody holds: in the child of a fork, whoever held them is not there."""
        self._loading = threading.Lock()
        self._lock = threading.RLock()
        """Of the same thread again, since a signal's handler may unload; held by nobody who waits for anything."""


def _after_fork(reference: weakref.ref[Drafts[Draft]]) -> None:
    drafts = reference()
    if drafts is not None:
        drafts._renew()
