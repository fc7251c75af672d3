"""Runs what may crash, or hang, in a process of its own: importing an engine loads native code.

The child answers with one JSON document. What engines print themselves goes to the standard error, and nowhere.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# In the child nothing is exported, downloaded, or instrumented twice.
_QUIET = {
    "OTEL_SDK_DISABLED": "true",
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child found.

    Attributes:
        found: Its document; empty if there is none.
        failure: Why there is none, as the rest of "it ..."; empty if there is one.
    """

    found: Mapping[str, Any]
    failure: str = ""


def ask_child(module: str, *arguments: str, timeout: float) -> Answer:
    """Run a module of ours as a program and return its answer.

    Args:
        module: Full name.
        arguments: What it is given.
        timeout: Seconds after which it is ended.
    """
    try:
        with _child([sys.executable, "-m", module, *arguments]) as child:
            output = child.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        return Answer({}, f"took longer than {timeout:g} s")
    except OSError as error:
        return Answer({}, f"could not be run ({type(error).__name__})")
    if child.returncode < 0:
        return Answer({}, f"ended the process ({_signal_name(-child.returncode)})")
    if child.returncode:
        return Answer({}, f"ended the process with status {child.returncode}")
    try:
        return Answer(json.loads(output))
    except ValueError:
        return Answer({}, "gave no answer")


@contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child; it ends with the block, and with this process at the latest."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        env={**os.environ, **_QUIET},
    )
    _running.add(child)
    try:
        with child:
            try:
                yield child
            except BaseException:
                child.kill()
                raise
    finally:
        _running.discard(child)


@atexit.register
def _end_children() -> None:
    """End the children of threads that nobody waited for."""
    for child in list(_running):
        child.kill()


def answer(find: Callable[[], Mapping[str, Any]]) -> None:
    """In a child: find something, with the standard output out of the way, and answer with it."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    found = find()
    sys.stdout.flush()
    with os.fdopen(kept, "w", encoding="utf-8") as out:
        json.dump(found, out, default=str)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
