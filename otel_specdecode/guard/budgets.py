"""What one tenant may take of what all share."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from otel_specdecode.guard.policy import Budget

_RUNS = 1e12
"""Seconds that put accounts with streams behind all that have none."""


@dataclass(slots=True)
class _Account:
    left: float
    at: float
    streams: int = 0
    queued: float = 0.0
    """Its place in the queue of those that are forgotten, which may be too early; never too late."""


class Budgets:
    """Accounts of tenants: streams that speculate, and proposed tokens. Not for several threads."""

    def __init__(self, budget: Budget, most: int) -> None:
        """Begin with a full account for everybody.

        Args:
            budget: What each may take.
            most: Accounts that are kept. Of more, one is forgotten that is full and without streams, the one used
                longest ago; where there is none, the one without streams that would be full soonest, and then one with.
        """
        self._most = most
        self._share = budget.share_of_streams
        self._limit = float(budget.draft_tokens_per_minute or 0)
        """Most of an account, and what a minute adds; 0 without a limit."""
        self._limits = self._share is not None or self._limit > 0
        self._accounts: dict[str, _Account] = {}
        self._queue: list[tuple[float, str]] = []
        """A heap of when each account will be full. One that was used since is put back when its turn comes."""

    def allows(self, tenant: str, speculating: int, now: float) -> bool:
        """Return whether a tenant may begin one more stream that speculates; the first one is in every share.

        Args:
            tenant: Who asks.
            speculating: Streams of all tenants that speculate.
            now: Clock reading in seconds.
        """
        if not self._limits:
            return True
        account = self._account(tenant, now)
        if self._limit and account.left <= 0:
            return False
        share, streams = self._share, account.streams
        if share is None or not streams or streams >= speculating:
            return True
        return streams + 1 <= share * (speculating + 1)

    def begin(self, tenant: str, now: float) -> None:
        """Take that a stream of a tenant began to speculate."""
        if self._limits:
            account = self._accounts.get(tenant) or self._account(tenant, now)
            account.streams += 1

    def end(self, tenant: str) -> None:
        """Take that one ended."""
        account = self._accounts.get(tenant)
        if account is not None and account.streams:
            account.streams -= 1
            if account.queued > self._full_at(account):
                self._enqueue(tenant, account)

    def spend(self, tenant: str, proposed: int, now: float) -> None:
        """Take that tokens were proposed; an account may go below nothing, and a minute at most."""
        if self._limit:
            account = self._account(tenant, now)
            account.left = max(account.left - proposed, -self._limit)

    def end_all(self) -> None:
        """Take that no stream runs any more."""
        for account in self._accounts.values():
            account.streams = 0
        self._enqueue_all()

    def _account(self, tenant: str, now: float) -> _Account:
        limit = self._limit
        account = self._accounts.get(tenant)
        if account is None:
            while len(self._accounts) >= self._most:
                self._forget_one()
            account = self._accounts[tenant] = _Account(limit, now)
            self._enqueue(tenant, account)
        if account.left < limit and now > account.at:
            account.left = min(account.left + limit * (now - account.at) / 60, limit)
        account.at = now
        return account

    def _full_at(self, account: _Account) -> float:
        """Return when an account will be full, or was used last where it is; behind all others while it has streams."""
        wait = 60 * (self._limit - account.left) / self._limit if self._limit else 0.0
        return account.at + wait + (_RUNS if account.streams else 0.0)

    def _forget_one(self) -> None:
        while True:
            queued, tenant = heapq.heappop(self._queue)
            account = self._accounts.get(tenant)
            if account is None or account.queued != queued:
                continue
            if self._full_at(account) <= queued:
                del self._accounts[tenant]
                return
            self._enqueue(tenant, account)

    def _enqueue(self, tenant: str, account: _Account) -> None:
        account.queued = self._full_at(account)
        heapq.heappush(self._queue, (account.queued, tenant))
        if len(self._queue) > 2 * self._most + 64:
            self._enqueue_all()

    def _enqueue_all(self) -> None:
        for account in self._accounts.values():
            account.queued = self._full_at(account)
        self._queue = [(account.queued, tenant) for tenant, account in self._accounts.items()]
        heapq.heapify(self._queue)
