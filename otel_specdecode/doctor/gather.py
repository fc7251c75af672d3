"""Gathers a whole report of this machine and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from otel_specdecode.doctor.checks import Check, Report, section_of
from otel_specdecode.doctor.daemons import side_by_side
from otel_specdecode.doctor.engines import engine_checks
from otel_specdecode.doctor.host import host_checks, memory_checks
from otel_specdecode.doctor.machine import machine_checks
from otel_specdecode.doctor.neighbours import neighbour_checks
from otel_specdecode.doctor.pair import Question, pair_checks
from otel_specdecode.doctor.telemetry import telemetry_checks
from otel_specdecode.host.machine import this_machine
from otel_specdecode.host.process_memory import lifetime_peaks, process_memory
from otel_specdecode.host.readers import reader_for


def gather(question: Question | None = None) -> Report:
    """Look at everything; what takes time is looked at side by side.

    Args:
        question: A target and its draft, if hazards of a pair are asked for.
    """
    environ = dict(os.environ)
    sections: list[tuple[str, str, Callable[[], Sequence[Check]]]] = [
        ("machine", "Machine", lambda: machine_checks(this_machine())),
        ("engines", "Engines", engine_checks),
        ("host", "Host", _host),
        ("telemetry", "OpenTelemetry", lambda: telemetry_checks(environ)),
        ("neighbours", "Other engines on this host", neighbour_checks),
    ]
    if question is not None:
        sections.append(("pair", "Target and draft", lambda: pair_checks(question)))
    return Report(tuple(side_by_side(lambda section: section_of(*section), sections)))


def _host() -> list[Check]:
    # One reading: of two in a row the counters of throttling would tell nominal, whatever the machine does.
    return [
        *host_checks(reader_for().read(), sys.platform),
        *memory_checks(process_memory(), lifetime_peaks(), sys.platform),
    ]
