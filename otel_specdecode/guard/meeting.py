"""Under which conditions requests run: what a baseline has to be of, to be comparable with them."""

from __future__ import annotations

from collections import OrderedDict

from otel_specdecode.generation.plan import Ask
from otel_specdecode.generation.request import Request
from otel_specdecode.guard.baseline import Conditions

MOST_MODELS = 256
"""Models of which the last conditions are kept."""

MOST_RUNNING = 10_000
"""Requests that run at once, of which conditions are kept."""


class Met:
    """Conditions that requests have met. Not for several threads."""

    def __init__(self) -> None:
        """Begin with none."""
        self._running: OrderedDict[int, Conditions] = OrderedDict()
        """Of the last stretch of each request that runs, by identity: when one is finished, others run."""
        self._latest: dict[tuple[str | None, str | None], Conditions] = {}
        """Of the last request of each model that speculated."""

    @property
    def running(self) -> int:
        """Requests whose conditions are kept."""
        return len(self._running)

    def meet(self, request: Request, conditions: Conditions) -> None:
        """Keep the conditions of a request that runs."""
        self._running[id(request)] = conditions
        if len(self._running) > MOST_RUNNING:
            self._running.popitem(last=False)

    def end(self, request: Request) -> Conditions | None:
        """Return the last conditions of a request, which are kept no longer; None if it met none."""
        return self._running.pop(id(request), None)

    def speculate(self, request: Request, conditions: Conditions) -> None:
        """Take them as those of its model."""
        self._latest[request.provider, request.model] = conditions
        if len(self._latest) > MOST_MODELS:
            self._latest.clear()

    def latest(self, ask: Ask) -> Conditions | None:
        """Return those of a model, for a scope that is seen first; None if it has not speculated yet."""
        return self._latest.get((ask.provider, ask.model))

    def forget_running(self) -> None:
        """In the child of a fork: no request of the parent's runs here."""
        self._running.clear()
