"""Transitions, and audit trails in folders, for the tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_specdecode.generation.transition import Lane, Transition
from otel_specdecode.guard.audit import AuditTrail
from otel_specdecode.guard.trail import read_trail
from tests.programs import ROOT

NOON = 1_767_268_800_123_456_789
"""2026-01-01T12:00:00.123456789Z."""

POLICY = "sha256:0123"
A_TRANSITION = Transition(
    at=NOON,
    lane=Lane("tenant", "acme", "mlx", "tiny", "draft_model"),
    before="closed",
    after="open",
    rung_before="as_asked",
    rung_after="autoregressive",
    trigger="break_even",
    reason="not_paying",
    value=0.875,
    threshold=1.0,
    samples=200,
    window_seconds=12.5,
    policy=POLICY,
    observe_only=False,
    trace_id="0af7651916cd43dd8448eb211c80319c",
)


PROGRAM = """
    import errno, os, resource, signal, sys
    from pathlib import Path
    from otel_specdecode.guard.trail import read_trail
    from tests.guard.trails import a_trail, transition
    folder = Path(sys.argv[1])
"""
"""How a program begins that has a trail."""


def transition(seconds: float = 0.0, **said: Any) -> Transition:
    """Return a transition some seconds after noon."""
    return replace(A_TRANSITION, at=NOON + int(seconds * 1e9), **said)


def a_trail(folder: Path, **given: Any) -> AuditTrail:
    """Return a trail in a folder; the test closes it."""
    return AuditTrail(folder, **{"most_bytes": 1_000_000, "files": 5, "policy": POLICY, **given})


def write_trail(folder: Path, transitions: Iterable[Transition], **given: Any) -> None:
    """Write a trail as one process does, from its beginning to its end."""
    trail = a_trail(folder, **given)
    for each in transitions:
        trail.write(each)
        assert trail.flush(10)
    assert trail.close()


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder with one process's trail, in the order in which they were begun."""
    return sorted(folder.iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))


def samples_in(folder: Path) -> list[float]:
    """What the lines of a whole trail are about: the samples that the test numbered them by."""
    trail = read_trail(folder)
    assert (trail.unreadable, trail.missing, trail.unfinished) == (0, 0, 0)
    return [entry.transition.samples for entry in trail.entries]


def environment() -> dict[str, str]:
    """Return the environment of a program that is to find these tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))}
