"""The command from beginning to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from otel_specdecode.doctor import bundle
from otel_specdecode.doctor.checks import Report, as_document
from otel_specdecode.doctor.gather import gather
from otel_specdecode.doctor.pair import Question
from otel_specdecode.doctor.redaction import Redaction, this_identity


def run(question: Question | None, *, as_json: bool, capture_to: Path | None) -> int:
    """Gather a report, print it and return the exit status.

    Args:
        question: A target and its draft, if hazards of a pair are asked for.
        as_json: Print one JSON document instead of tables.
        capture_to: Where a bundle is written, if one is wanted.
    """
    report = gather(question)
    if as_json:
        sys.stdout.write(json.dumps(as_document(report), indent=1, ensure_ascii=False) + "\n")
    else:
        _show(report)
    return max(report.exit_status, _capture(report, capture_to) if capture_to is not None else 0)


def _show(report: Report) -> None:
    try:
        from otel_specdecode.doctor import terminal
    except ModuleNotFoundError as error:
        raise SystemExit('otel-specdecode needs its extra [cli]: pip install "otel-specdecode[cli]"') from error
    terminal.show(report)


def _capture(report: Report, path: Path) -> int:
    """Write a bundle and say so on the standard error; return 1 if it could not be written."""
    _say(f"Reading the host and running the tiny pair for {path.name} ...")
    try:
        content = bundle.capture(report, Redaction(this_identity()))
    except Exception as error:
        _say(f"The host could not be captured ({type(error).__name__}).")
        return 1
    try:
        bundle.write(path, content)
    except OSError as error:
        _say(f"{path} could not be written ({error.strerror}).")
        return 1
    _say(f"Wrote {path}. It is plain text: read it before you send it.")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
