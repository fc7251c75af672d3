"""How a command ends that cannot go on: with a sentence and an exit status, never with a traceback."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

_MISSING = 'this needs the extra [acceptance]: pip install "otel-specdecode[acceptance]"'
_EXTRA = {"jinja2", "jsonschema", "matplotlib", "msgspec", "numpy", "opentelemetry.exporter", "rich", "scipy"}
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL = 128


class _SignalledError(KeyboardInterrupt):
    """A signal wants an end; all that listens to Ctrl-C listens to it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = _BY_SIGNAL + number


@contextmanager
def told() -> Iterator[None]:
    """End with a sentence where something has to be changed, an extra is missing, or after Ctrl-C."""
    try:
        from otel_specdecode.acceptance.errors import AcceptanceError
    except ModuleNotFoundError as error:
        raise click.ClickException(_MISSING) from error
    try:
        yield
    except AcceptanceError as error:
        raise click.ClickException(str(error)) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _EXTRA or (error.name or "").startswith("opentelemetry"):
            raise click.ClickException(_MISSING) from error
        raise
    except KeyboardInterrupt:
        click.echo("\nInterrupted.", err=True)
        sys.exit(INTERRUPTED)


@contextmanager
def though_unprinted() -> Iterator[None]:
    """Go on where what is printed goes nowhere: the disk is full, or a reader went away, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except (OSError, SystemExit) as error:  # Rich ends the process from 13.8 on where the reader went away
        print_nowhere()
        if isinstance(error, OSError) and error.errno != errno.EPIPE:
            with suppress(OSError):
                click.echo(f"What was to be printed could not be written ({error.strerror}).", err=True)


def print_nowhere() -> None:
    """Have nothing more be printed, so that what waits in a buffer fails no second time as the process ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def interruptible(folder: Path, *, resumable: bool) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a closed terminal end a run in an orderly way; the second of them ends it at once.

    Args:
        folder: Of the run.
        resumable: Whether it can be gone on with.
    """
    before = {number: _listen(number) for number in _ENDING}
    try:
        yield
    except KeyboardInterrupt as ended:
        with suppress(OSError):  # the terminal may be gone
            click.echo(f"\n{_said(folder, resumable)}", err=True)
        sys.exit(getattr(ended, "status", INTERRUPTED))
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _said(folder: Path, resumable: bool) -> str:
    from otel_specdecode.acceptance.storage import holds_run

    if not holds_run(folder):
        return "Interrupted, before there was anything to keep."
    more = f" Go on with the same command and --resume --out {shlex.quote(str(folder))}" if resumable else ""
    return f"Interrupted; what ended is kept in {folder}.{more}"


def _listen(number: int) -> signal._HANDLER | None:
    """Have a signal raise; return what it did before, None where that is left: it is ignored, or another's."""
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.getsignal(number)
    if before != usual:
        return None
    try:
        signal.signal(number, _end)
    except ValueError:  # not the main thread
        return None
    return before


def _end(number: int, _: FrameType | None) -> None:
    for each in _ENDING:
        if signal.getsignal(each) is _end:
            signal.signal(each, signal.SIG_DFL)
    raise _SignalledError(number)
