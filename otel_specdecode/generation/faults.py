"""One warning a cause when recording fails; generation itself goes on."""

from __future__ import annotations

import logging
import os.path
import traceback
from queue import Empty, SimpleQueue

_logger = logging.getLogger("otel_specdecode")
_told: set[tuple[str, type[BaseException]]] = set()
_waiting: SimpleQueue[tuple[str, BaseException]] = SimpleQueue()


def report_fault(what: str, error: BaseException, detail: str = "") -> None:
    """Log that something could not be recorded, once for each text and exception class.

    The exception's own text stays out, at every level: it may quote a prompt. Where it was raised goes to the debug
    level.

    Args:
        what: What could not be recorded; a fixed text.
        error: Why.
        detail: Numbers for the debug level, of our own making.
    """
    cause = (what, type(error))
    if cause in _told:
        return
    _told.add(cause)
    _logger.warning("%s (%s); generation is not affected", what, type(error).__qualname__)
    _logger.debug("%s, raised in %s %s", what, _places(error), detail)


def _places(error: BaseException) -> str:
    """Return the functions an exception came through, without source lines and folders."""
    frames = traceback.extract_tb(error.__traceback__)
    return " > ".join(f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})" for frame in frames)


def report_fault_later(what: str, error: BaseException) -> None:
    """Keep a fault for tell_faults(): for code that may run in a finalizer, where logging could wait for a lock."""
    if (what, type(error)) not in _told:
        _waiting.put((what, error))


def tell_faults() -> None:
    """Report the faults that were kept."""
    while not _waiting.empty():
        try:
            what, error = _waiting.get_nowait()
        except Empty:
            return
        report_fault(what, error)


def warn_once(what: str) -> None:
    """Log a warning, once for each text."""
    cause = (what, Warning)
    if cause not in _told:
        _told.add(cause)
        _logger.warning("%s", what)
