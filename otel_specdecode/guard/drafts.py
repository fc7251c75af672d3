"""A draft that is loaded when it is needed and let go of when the guard says so."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from otel_specdecode.generation.plan import Plan
from otel_specdecode.guard.telling import Unloaded

Draft = TypeVar("Draft")


class Drafts(Generic[Draft]):
    """The draft of a program, and a lighter one where it has one. Only this may hold them for long."""

    def __init__(
        self,
        load: Callable[[], Draft],
        load_lighter: Callable[[], Draft] | None = None,
        *,
        freed: Callable[[], None] | None = None,
        unloaded: Callable[[], Unloaded] = lambda: (0, None),
    ) -> None:
        """Load nothing yet.

        Args:
            load: Loads the draft.
            load_lighter: Loads one that takes less memory and time.
            freed: Called after the drafts were let go of, to have an allocator give memory back.
            unloaded: How often it was decided to let go of them, and why the last time.
        """
        self._load = {False: load} if load_lighter is None else {False: load, True: load_lighter}
        self._loaded: dict[bool, Draft] = {}
        self._freed = freed
        self._unloaded = unloaded
        self._lock = threading.Lock()

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
        with self._lock:
            if lighter not in self._loaded:
                unloads, reason = self._unloaded()
                if plan.unloads is not None and plan.unloads != unloads:
                    plan.keep_without(reason)
                    return None
                self._loaded.clear()
                self._loaded[lighter] = self._load[lighter]()
            return self._loaded[lighter]

    def unload(self) -> None:
        """Let go of the drafts: their memory is free as soon as no request runs with them."""
        with self._lock:
            self._loaded.clear()
        gc.collect()
        if self._freed is not None:
            self._freed()
