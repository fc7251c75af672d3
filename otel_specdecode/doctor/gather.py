"""Gathers a whole report of this machine and environment."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from otel_specdecode.doctor.checks import Check, Report, section_of
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
    with ThreadPoolExecutor(max_workers=5) as pool:
        engines = pool.submit(section_of, "engines", "Engines", engine_checks)
        host = pool.submit(section_of, "host", "Host", _host)
        telemetry = pool.submit(section_of, "telemetry", "OpenTelemetry", lambda: telemetry_checks(environ))
        neighbours = pool.submit(section_of, "neighbours", "Other engines on this host", neighbour_checks)
        found = [engines, host, telemetry, neighbours]
        if question is not None:
            found.append(pool.submit(section_of, "pair", "Target and draft", lambda: pair_checks(question)))
        machine = section_of("machine", "Machine", lambda: machine_checks(this_machine()))
        return Report((machine, *(each.result() for each in found)))


def _host() -> list[Check]:
    reader = reader_for()
    reader.read()
    state = reader.read()  # some values, such as throttle counters, take two readings
    return [*host_checks(state, sys.platform), *memory_checks(process_memory(), lifetime_peaks(), sys.platform)]
