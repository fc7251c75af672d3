"""Chooses a share of requests, and holds to it within a session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class Chooser:
    """Chooses every n-th request or session for a purpose, evenly. Not for several threads.

    A session keeps what it was chosen for, so that its prompt cache does not change hands in the middle of a talk.
    """

    def __init__(self, most: int) -> None:
        """Begin.

        Args:
            most: Sessions and purposes that are remembered; of more, the one that came longest ago is chosen for anew.
        """
        self._most = most
        self._due: OrderedDict[Hashable, float] = OrderedDict()
        self._sessions: OrderedDict[tuple[Hashable, str | None], bool] = OrderedDict()

    def chooses(self, purpose: Hashable, share: float, session: str | None, *, first: bool = False) -> bool:
        """Return whether a request is one of the share.

        Args:
            purpose: What it is chosen for; each has its own share.
            share: Of all requests, 0 to 1.
            session: Its session, None without one.
            first: Whether the first request is chosen; else those before the first chosen one are counted out first.
        """
        if session is None:
            return self._next(purpose, share, first)
        found = self.kept(purpose, session)
        if found is None:
            found = self._sessions[purpose, session] = self._next(purpose, share, first)
            if len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        return found

    def kept(self, purpose: Hashable, session: str | None) -> bool | None:
        """Return whether a session was chosen before, None if nothing was said of it."""
        key = (purpose, session)
        found = self._sessions.get(key)
        if found is not None:
            self._sessions.move_to_end(key)
        return found

    def _next(self, purpose: Hashable, share: float, first: bool) -> bool:
        due = self._due.pop(purpose, 1.0 - share if first else 0.0) + share
        chosen = due >= 1 - 1e-9
        self._due[purpose] = due - 1 if chosen else due
        if len(self._due) > self._most:
            self._due.popitem(last=False)
        return chosen
