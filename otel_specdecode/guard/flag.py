"""The feature flag: whether speculation is switched on, whatever was measured."""

from __future__ import annotations

from typing import Final

from otel_specdecode.generation.transition import State
from otel_specdecode.guard.breaker import Change

FEATURE_FLAG: Final = "feature_flag"
"""Fallback reason of requests while speculation is switched off."""

_TRIGGER: Final = "flag"
_ON: Final[tuple[State, str]] = ("closed", "as_asked")
_OFF: Final[tuple[State, str]] = ("open", "autoregressive")


class FeatureFlag:
    """Switched by code, else by what a file or the environment said last. Not for several threads."""

    def __init__(self) -> None:
        """Begin with speculation switched on."""
        self._switched: bool | None = None
        self._said = True

    @property
    def on(self) -> bool:
        """Whether speculation is switched on."""
        return self._said if self._switched is None else self._switched

    def switch(self, on: bool | None) -> Change | None:
        """Take what code says, None for nothing (any more); return what that changed."""
        before, self._switched = self.on, on
        return self._change(before)

    def say(self, on: bool) -> Change | None:
        """Take what a file or the environment says; return what that changed."""
        before, self._said = self.on, on
        return self._change(before)

    def _change(self, before: bool) -> Change | None:
        if self.on == before:
            return None
        (was, rung_before), (state, rung) = (_ON, _OFF) if before else (_OFF, _ON)
        return Change(was, state, rung_before, rung, _TRIGGER, FEATURE_FLAG if before else None)
