"""One warning a cause when recording fails; generation itself goes on."""

from __future__ import annotations

import logging

_logger = logging.getLogger("otel_specdecode")
_told: set[tuple[str, type[BaseException]]] = set()


def report_fault(what: str, error: BaseException) -> None:
    """Log that something could not be recorded, once for each text and exception class.

    The exception's own text stays out: it may quote a prompt. The traceback goes to the debug level.
    """
    cause = (what, type(error))
    if cause in _told:
        return
    _told.add(cause)
    _logger.warning("%s (%s); generation is not affected", what, type(error).__qualname__)
    _logger.debug("%s", what, exc_info=error)


def warn_once(what: str) -> None:
    """Log a warning, once for each text."""
    cause = (what, Warning)
    if cause not in _told:
        _told.add(cause)
        _logger.warning("%s", what)
