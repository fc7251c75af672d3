"""Whole programs on both engines: what the environment tells, forks, and the end with a request open."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.engines.both import Engine
from tests.programs import run_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PROGRAM = """
    import os, sys, time
    from pathlib import Path
    from otel_specdecode.host.sampler import peak_sampler
    from otel_specdecode.telemetry.host_metrics import watch
    import otel_specdecode
    from otel_specdecode.testing import Telemetry
    from tests import proc
    from tests.engines.both import ENGINES
    from tests.proc import COUNTERS, MIB

    PEAK, LIFETIME = "specdecode.process.peak_rss", "specdecode.process.peak_rss_lifetime"
    telemetry = Telemetry()
    otel_specdecode.instrument(
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
        logger_provider=telemetry.logger_provider,
    )
    engine = ENGINES[sys.argv[1]](Path(sys.argv[2]))
"""


AT_ONCE = 4.0
"""Seconds that a loaded machine may take to end a process; what is still to be recorded may take 5 s."""


def run(engine: Engine, folder: Path, program: str, **variables: str) -> str:
    """Run a program that has an engine of its own, instrumented."""
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(program)
    return run_program(text, engine.name, str(folder), timeout=100, **variables)


def test_the_environment_tells_run_and_profile_on_every_span(engine: Engine, tmp_path: Path) -> None:
    printed = run(
        engine,
        tmp_path,
        """
        for call in engine.kinds.values():
            call()
        found = [dict(span.attributes) for span in telemetry.spans()]
        print({(each["specdecode.run_id"], each["specdecode.machine_profile"]) for each in found})
        """,
        OTEL_SPECDECODE_RUN_ID="canary-7",
        OTEL_SPECDECODE_MACHINE_PROFILE="a-studio",
    )
    assert printed.strip() == "{('canary-7', 'a-studio')}"


@pytest.mark.parametrize("speculative", [False, True], ids=["autoregressive", "speculative"])
def test_a_process_ends_at_once_with_a_request_open(speculative: bool, engine: Engine, tmp_path: Path) -> None:
    """It waits for no reading, and not for the time that the thread of readings waits for another request."""
    printed = run(
        engine,
        tmp_path,
        f"""
        list(engine.stream(2, speculative={speculative}))
        peak_sampler._linger = 60
        stream = engine.stream(20, speculative={speculative})
        next(stream)
        proc.wait_for(lambda: proc.threads("otel-specdecode-memory"))
        telemetry.spans()
        print(time.monotonic(), flush=True)
        """,
    )
    assert time.monotonic() - float(printed) < AT_ONCE


@pytest.mark.llama_cpp
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_with_a_request_open_leaves_parent_and_child_with_peaks_of_their_own(
    engine: Engine, tmp_path: Path
) -> None:
    """On llama.cpp; MLX's own threads do not live on in a child."""
    if engine.name != "llama_cpp":
        pytest.skip("MLX cannot be used in the child of a fork")
    printed = run(
        engine,
        tmp_path,
        """
        for place in range(2):
            list(engine.stream(2, place=place))
        telemetry.clear()
        stream = engine.stream(20)
        next(stream)
        proc.wait_for(lambda: proc.open_probes())
        child = os.fork()
        before = proc.resident()
        if child == 0:
            assert proc.open_probes() == []
            for during in (lambda: None, lambda: proc.take_for_150_ms(200 * MIB)):
                running = engine.stream(4, place=1)
                next(running)
                during()
                list(running)
            quiet, loud = (dict(span.attributes)[PEAK] for span in telemetry.spans())
            assert before - COUNTERS <= quiet < before + 60 * MIB, (before, quiet)
            assert loud >= before + 190 * MIB, (before, loud)
            assert len(proc.threads("otel-specdecode-host")) == 1
            proc.wait_for(lambda: watch.state().memory_available.known)
            print("child", flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(list(stream)) >= 19
        peak = dict(telemetry.span().attributes)[PEAK]
        assert before - COUNTERS <= peak < before + 60 * MIB, (before, peak)
        print("parent")
        """,
    )
    assert printed.split() == ["child", "parent"]
