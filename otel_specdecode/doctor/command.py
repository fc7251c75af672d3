"""The command from beginning to end."""

from __future__ import annotations

import json
import os
from pathlib import Path

from otel_specdecode.doctor import bundle
from otel_specdecode.doctor.checks import Report, as_document
from otel_specdecode.doctor.gather import gather
from otel_specdecode.doctor.output import say, write_out
from otel_specdecode.doctor.pair import Question
from otel_specdecode.doctor.redaction import Redaction, this_identity
from otel_specdecode.doctor.texts import one_line


def run(question: Question | None, *, as_json: bool, capture_to: Path | None) -> int:
    """Gather a report, print it and return the exit status.

    Args:
        question: A target and its draft, if hazards of a pair are asked for.
        as_json: Print one JSON document instead of tables.
        capture_to: Where a bundle is written, if one is wanted.
    """
    if capture_to is not None and os.path.lexists(capture_to):
        say(f"{one_line(str(capture_to))} is there already and stays as it is: name another file.")
        return 1
    report = gather(question)
    redaction = Redaction(this_identity())
    written = write_out(_document(report, redaction) if as_json else _tables(report, redaction))
    captured = _capture(report, redaction, capture_to) if capture_to is not None else 0
    return max(report.exit_status, captured) or written


def _document(report: Report, redaction: Redaction) -> str:
    return json.dumps(redaction.value(as_document(report)), indent=1) + "\n"


def _tables(report: Report, redaction: Redaction) -> str:
    try:
        from otel_specdecode.doctor import terminal
    except ModuleNotFoundError as error:
        raise SystemExit('otel-specdecode needs its extra [cli]: pip install "otel-specdecode[cli]"') from error
    return terminal.rendered(report, redaction.places)


def _capture(report: Report, redaction: Redaction, path: Path) -> int:
    """Write a bundle and say so on the standard error; return 1 if it could not be written."""
    name = one_line(str(path))
    say(f"Reading the host and running the tiny pair for {one_line(path.name)} ...")
    try:
        content = bundle.capture(report, redaction)
    except Exception as error:
        say(f"The host could not be captured ({type(error).__name__}).")
        return 1
    try:
        bundle.write(path, content)
    except (OSError, ValueError) as error:
        say(f"{name} could not be written ({getattr(error, 'strerror', None) or type(error).__name__}).")
        return 1
    say(f"Wrote {name}. It is plain text: read it before you send it.")
    return 0
