"""Exports what is recorded before SIGTERM ends a program that has no handler of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from otel_specdecode.telemetry.flushing import flush

SIGTERM_FLUSH = "OTEL_SPECDECODE_SIGTERM_FLUSH"
"""Environment variable: `false` to leave SIGTERM alone."""

FLUSH_SECONDS = 5.0
"""The longest that the end of the process is held up."""

_ZERO_CODE = "opentelemetry.instrumentation.auto_instrumentation"


def flush_at_sigterm() -> bool:
    """Have SIGTERM flush before it ends the process as ever, where nobody else could.

    That is under zero code, since a program that instruments itself can flush itself; on the main thread, which alone
    may set a handler; and where SIGTERM is at its default. A handler that the program sets later takes its place.

    Returns:
        Whether a handler was set.
    """
    if os.environ.get(SIGTERM_FLUSH, "").strip().lower() == "false" or not _under_zero_code():
        return False
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, _flush_and_end)
    return True


def _flush_and_end(number: int, _: FrameType | None) -> None:
    """Flush on a thread of its own: this one may have been interrupted while it held a lock that the flush needs."""
    flushing = threading.Thread(target=flush, args=(FLUSH_SECONDS,), name="otel-specdecode-flush", daemon=True)
    try:
        flushing.start()
        flushing.join(FLUSH_SECONDS)
    finally:  # at the end of the interpreter no thread can be started any more
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    # Only as process 1 of a container does the process live on: its default is to ignore the signal.
    signal.signal(number, _flush_and_end)


def _under_zero_code() -> bool:
    """Tell whether OpenTelemetry's auto-instrumentation is calling."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == _ZERO_CODE or name.startswith(f"{_ZERO_CODE}."):
            return True
        frame = frame.f_back
    return False
