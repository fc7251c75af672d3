"""The ladder from full speculation to none."""

from __future__ import annotations

from typing import NamedTuple

from otel_specdecode.guard.policy import Ladder


class Rung(NamedTuple):
    """A step of the ladder.

    Attributes:
        name: What it is called in telemetry and trail.
        draft_length: Most tokens that may be proposed at once; None: as asked for.
        lighter: Whether the draft is the lighter one.
        unloaded: Whether the draft's memory is freed.
    """

    name: str
    draft_length: int | None = None
    lighter: bool = False
    unloaded: bool = False


def rungs_of(asked: int | None, ladder: Ladder, *, lighter: bool = False, unloads: bool = False) -> tuple[Rung, ...]:
    """Return the rungs of requests that ask for a draft length, from full speculation to none.

    Args:
        asked: The draft length; None where the draft does not tell.
        ladder: The policy's.
        lighter: Whether there is a lighter draft.
        unloads: Whether the draft can be unloaded.
    """
    shorter = [length for length in ladder.lengths if asked is None or length < asked]
    rungs = [Rung("as_asked"), *(Rung(f"k={length}", length) for length in shorter)]
    if lighter:
        rungs.append(Rung("lighter", shorter[-1] if shorter else None, lighter=True))
    rungs.append(Rung("autoregressive", 0))
    if unloads:
        rungs.append(Rung("unloaded", 0, unloaded=True))
    return tuple(rungs)
