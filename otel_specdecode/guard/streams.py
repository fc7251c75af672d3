"""The requests that run now: what they take of the service and of their tenant's budget, until they end."""

from __future__ import annotations

from collections import deque
from functools import partial

from otel_specdecode.generation.plan import Permit
from otel_specdecode.guard.budgets import Budgets
from otel_specdecode.guard.clocks import Clock, Steady
from otel_specdecode.guard.policy import Budget
from otel_specdecode.guard.service import ServiceMeter

Ended = tuple[float, bool, "str | None"]
"""When a request ended by the clock, whether it speculated, and for whom."""


class Streams:
    """Running requests. Not for several threads, but their permits are given back on any.

    Attributes:
        service: How many run, and what the service puts out.
        budgets: What each tenant may take yet.
    """

    def __init__(self, budget: Budget, most: int, clock: Clock, steady: Steady) -> None:
        """Begin with none.

        Args:
            budget: What each tenant may take.
            most: Tenants whose accounts are kept.
            clock: Read when a request ends, by whoever ends it.
            steady: The time that goes by that clock.
        """
        self.service = ServiceMeter()
        self.budgets = Budgets(budget, most)
        self._clock = clock
        self._steady = steady
        self._ended: deque[Ended] = deque()

    def begin(self, tenant: str | None, *, speculates: bool, now: float) -> Permit:
        """Take that a request begins; return its permit, which settle() has back once it is given back."""
        self.service.change(1, speculates, now)
        if speculates and tenant is not None:
            self.budgets.begin(tenant, now)
        return Permit(partial(_end, self._ended, self._clock, speculates, tenant))

    def settle(self) -> None:
        """Take back the permits of requests that ended since."""
        while self._ended:
            at, speculated, tenant = self._ended.popleft()
            self.service.change(-1, -speculated, self._steady.at(at))
            if speculated and tenant is not None:
                self.budgets.end(tenant)

    def forget_all(self) -> None:
        """In the child of a fork: no request of the parent's runs here, whatever becomes of its permit."""
        self.service = ServiceMeter()
        self.budgets.end_all()
        self._ended = deque()


def _end(ended: deque[Ended], clock: Clock, speculated: bool, tenant: str | None) -> None:
    """Note that a request ended; maybe inside garbage collection, so without any lock."""
    ended.append((clock(), speculated, tenant))
