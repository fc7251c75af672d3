"""What one tenant may take of what all share."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from otel_specdecode.guard.policy import Budget


@dataclass(slots=True)
class _Account:
    left: float
    at: float
    streams: int = 0


class Budgets:
    """Accounts of tenants: streams that speculate, and proposed tokens. Not for several threads."""

    def __init__(self, budget: Budget, most: int) -> None:
        """Begin with a full account for everybody.

        Args:
            budget: What each may take.
            most: Accounts that are kept; of more, the one that was used longest ago is forgotten.
        """
        self._most = most
        self._share = budget.share_of_streams
        self._limit = float(budget.draft_tokens_per_minute or 0)
        """Most of an account, and what a minute adds; 0 without a limit."""
        self._limits = self._share is not None or self._limit > 0
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

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

    def spend(self, tenant: str, proposed: int, now: float) -> None:
        """Take that tokens were proposed; an account may go below nothing, and a minute at most."""
        if self._limit:
            account = self._account(tenant, now)
            account.left = max(account.left - proposed, -self._limit)

    def end_all(self) -> None:
        """Take that no stream runs any more."""
        for account in self._accounts.values():
            account.streams = 0

    def _account(self, tenant: str, now: float) -> _Account:
        limit = self._limit
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = _Account(limit, now)
            if len(self._accounts) > self._most:
                self._accounts.popitem(last=False)
        else:
            self._accounts.move_to_end(tenant)
        if account.left < limit and now > account.at:
            account.left = min(account.left + limit * (now - account.at) / 60, limit)
        account.at = now
        return account
