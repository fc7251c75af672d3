"""Exports what is recorded before SIGTERM ends a program that has no handler of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from otel_specdecode.telemetry.flushing import flush

SIGTERM_FLUSH = "OTEL_SPECDECODE_SIGTERM_FLUSH"
"""Environment variable: `false` to leave SIGTERM alone."""

FLUSH_SECONDS = 5.0
"""The longest that the end of the process is held up."""

_SDK_DISABLED = "OTEL_SDK_DISABLED"
_ZERO_CODE = "opentelemetry.instrumentation.auto_instrumentation"


def flush_at_sigterm() -> bool:
    """Have SIGTERM flush before it ends the process as ever, where nobody else could.

    That is under zero code, since a program that instruments itself can flush itself; with an SDK; on the main thread,
    which alone may set a handler; and where SIGTERM is at its default. A handler that the program sets later takes its
    place. The child of a fork, which has none of the threads that export, has the default again.

    Python runs handlers between two of its bytecodes: where the main thread is in a long C call, as while a model is
    loaded or a long prompt is read, the process ends only after that.

    Returns:
        Whether a handler was set.
    """
    off = _is(SIGTERM_FLUSH, "false") or _is(_SDK_DISABLED, "true")
    if off or not _under_zero_code() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    return _set(_flush_and_end)


def leave_sigterm() -> None:
    """Set SIGTERM back to its default where it still has the handler of flush_at_sigterm()."""
    if signal.getsignal(signal.SIGTERM) is _flush_and_end:
        _set(signal.SIG_DFL)


def _set(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> bool:
    try:
        signal.signal(signal.SIGTERM, handler)
    except ValueError:  # not the main thread of the main interpreter
        return False
    return True


def _flush_and_end(number: int, _: FrameType | None) -> None:
    """Flush on a thread of its own: this one may have been interrupted while it held a lock that the flush needs."""
    signal.signal(number, signal.SIG_DFL)  # first of all: a second one ends the process at once
    flushing = threading.Thread(target=flush, args=(FLUSH_SECONDS,), name="otel-specdecode-flush", daemon=True)
    try:
        flushing.start()
        flushing.join(FLUSH_SECONDS)
    finally:  # at the end of the interpreter no thread can be started any more
        os.kill(os.getpid(), number)
    # Only as process 1 of a container does the process live on: its default is to ignore the signal.
    signal.signal(number, _flush_and_end)


def _is(variable: str, value: str) -> bool:
    return os.environ.get(variable, "").strip().lower() == value


def _under_zero_code() -> bool:
    """Tell whether OpenTelemetry's auto-instrumentation is calling."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == _ZERO_CODE or name.startswith(f"{_ZERO_CODE}."):
            return True
        frame = frame.f_back
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_sigterm)
