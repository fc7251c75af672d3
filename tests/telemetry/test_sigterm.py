"""SIGTERM under zero code: what is recorded is exported, and the process ends by the signal as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from otel_specdecode.telemetry import sigterm
from otel_specdecode.telemetry.sigterm import FLUSH_SECONDS, SIGTERM_FLUSH, flush_at_sigterm

LAUNCHER = Path(sys.executable).parent / "opentelemetry-instrument"
SPAN = """
import os, signal, threading
from opentelemetry import trace
trace.get_tracer("app").start_span("last work").end()
"""
END = "os.kill(os.getpid(), signal.SIGTERM)\nthreading.Event().wait(20)\n"
CONSOLE = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_BSP_SCHEDULE_DELAY": "60000",
}


def run(program: str, *launcher: str, **variables: str) -> tuple[int, str]:
    """Run a program; return its exit code and what it printed."""
    pytest.importorskip("opentelemetry.distro", reason="needs the [zero-code] extra")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [*launcher, sys.executable, "-c", textwrap.dedent(program)],
        env={**clean, **CONSOLE, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def test_what_is_recorded_is_exported_before_the_signal_ends_the_process() -> None:
    code, printed = run(SPAN + END, str(LAUNCHER))
    assert code == -signal.SIGTERM
    assert '"name": "last work"' in printed


@pytest.mark.parametrize("value", ["false", " FALSE "])
def test_it_can_be_switched_off(value: str) -> None:
    code, printed = run(SPAN + END, str(LAUNCHER), **{SIGTERM_FLUSH: value})
    assert (code, printed) == (-signal.SIGTERM, "")


def test_a_handler_of_the_programs_own_takes_its_place() -> None:
    own = "signal.signal(signal.SIGTERM, lambda *_: (print('own', flush=True), os._exit(7)))\n"
    code, printed = run(SPAN + own + END, str(LAUNCHER))
    assert (code, printed.strip()) == (7, "own")


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As in a container or under a service manager that has it ignored: the program inherits that."""
    starts = f"""
    import os, signal, sys
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    shows = "import signal; print(signal.getsignal(15).name)"
    os.execv({str(LAUNCHER)!r}, [{str(LAUNCHER)!r}, sys.executable, "-c", shows])
    """
    code, printed = run(starts)
    assert (code, printed.splitlines()[0]) == (0, "SIG_IGN")


def test_an_exporter_that_hangs_holds_the_end_up_for_a_few_seconds_at_most() -> None:
    hangs = """
    import threading
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
    class Hangs(SpanExporter):
        def force_flush(self, timeout_millis=0):
            threading.Event().wait()
    class Flushes(SimpleSpanProcessor):
        def force_flush(self, timeout_millis=0):
            return self.span_exporter.force_flush()
    trace.get_tracer_provider().add_span_processor(Flushes(Hangs()))
    """
    began = time.monotonic()
    code, _ = run(SPAN + textwrap.dedent(hangs) + END, str(LAUNCHER))
    assert code == -signal.SIGTERM
    assert time.monotonic() - began < FLUSH_SECONDS + 15


def test_instrument_alone_leaves_the_signal_to_the_program() -> None:
    code, printed = run(
        "import otel_specdecode, signal; otel_specdecode.instrument(); print(signal.getsignal(15).name)"
    )
    assert (code, printed.strip()) == (0, "SIG_DFL")
    assert not flush_at_sigterm()


HANDLER = "handler = signal.getsignal(15)\nprint(getattr(handler, 'name', 'ours'), flush=True)\n"


def test_a_second_signal_ends_the_process_at_once() -> None:
    signals_again = """
    import otel_specdecode.telemetry.sigterm as sigterm
    sigterm.FLUSH_SECONDS = 600.0
    def hangs(timeout):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()
    sigterm.flush = hangs
    """
    code, _ = run(SPAN + textwrap.dedent(signals_again) + END, str(LAUNCHER))
    assert code == -signal.SIGTERM


def test_the_child_of_a_fork_has_the_default_again_and_a_program_that_forks_keeps_what_it_set() -> None:
    forks = "pid = os.fork()\n" + HANDLER + "os._exit(0) if pid == 0 else os.waitpid(pid, 0)\n"
    own = "signal.signal(15, lambda *_: None)\n"
    assert sorted(run("import os, signal\n" + forks, str(LAUNCHER))[1].split()) == ["SIG_DFL", "ours"]
    assert run("import os, signal\n" + own + forks, str(LAUNCHER))[1].split() == ["ours", "ours"]


def test_without_an_sdk_there_is_nothing_to_flush() -> None:
    assert run("import signal\n" + HANDLER, str(LAUNCHER))[1].split() == ["ours"]
    assert run("import signal\n" + HANDLER, str(LAUNCHER), OTEL_SDK_DISABLED="true")[1].split() == ["SIG_DFL"]


def test_once_no_engine_is_instrumented_any_more_the_default_is_back() -> None:
    program = """
    import signal
    from otel_specdecode.instrumentors import instrumentors
    for each in instrumentors().values():
        each.uninstrument()
        print(signal.getsignal(15) is signal.SIG_DFL)
    """
    assert run(program, str(LAUNCHER))[1].split() == ["False", "True"]


def test_where_no_handler_may_be_set_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sub-interpreter, whose main thread may not either."""

    def refuses(*_: object) -> None:
        raise ValueError("signal only works in main thread of the main interpreter")

    monkeypatch.setattr(sigterm, "_under_zero_code", lambda: True)
    monkeypatch.setattr(signal, "signal", refuses)
    assert not flush_at_sigterm()
