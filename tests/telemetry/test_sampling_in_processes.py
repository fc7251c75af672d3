"""Whole processes and their memory: what was there before them, forks with a request open, and the end."""

from __future__ import annotations

import sys
import textwrap
import time

import pytest

from tests import proc
from tests.programs import run_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

REQUESTS = """
    import os, sys, threading, time
    from otel_specdecode.host.sampler import peak_sampler
    from otel_specdecode.telemetry.host_metrics import watch
    from otel_specdecode.telemetry.listener import recorder
    from otel_specdecode.testing import Telemetry
    from otel_specdecode.testing.fake import FakeClock, Script, fake_stream
    from tests import proc
    from tests.proc import COUNTERS, MIB

    PEAK, LIFETIME = "specdecode.process.peak_rss", "specdecode.process.peak_rss_lifetime"
    telemetry = Telemetry()
    listener = telemetry.listener()

    def stream(tokens=4):
        return fake_stream(listener, Script(tokens=tokens), FakeClock())

    def request(during=lambda: None):
        '''Run one request to its end; return the attributes of its span.'''
        telemetry.clear()
        running = stream()
        next(running)
        during()
        list(running)
        return dict(telemetry.span().attributes)

    def take():
        proc.take_for_150_ms(200 * MIB)
"""


AT_ONCE = 4.0
"""Seconds that a loaded machine may take to end a process; what is still to be recorded may take 5 s."""


def run(program: str, **variables: str) -> str:
    """Run a program that makes requests."""
    return run_program(textwrap.dedent(REQUESTS) + textwrap.dedent(program), timeout=60, **variables)


FORK = """
    open_stream = stream(1_000)
    next(open_stream)
    proc.wait_for(lambda: proc.open_probes())
    proc.wait_for(lambda: watch.state().memory_available.known)
    child = os.fork()
    if child == 0:
        {child}
        sys.stdout.flush()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    {parent}
"""


def fork(child: str = "pass", parent: str = "pass") -> str:
    """Return a program that forks while a request is open, whose readings are under way."""
    inside = textwrap.indent(textwrap.dedent(child).strip(), " " * 8).lstrip()
    after = textwrap.indent(textwrap.dedent(parent).strip(), " " * 4).lstrip()
    return FORK.format(child=inside, parent=after)


def test_the_child_of_a_fork_keeps_no_probe_of_its_parent() -> None:
    child = """
        assert proc.open_probes() == [], proc.open_probes()
        assert not peak_sampler._open
        request()
        assert not [each for each in proc.open_probes() if each != f"/proc/{os.getpid()}/statm"]
        proc.wait_for(lambda: not proc.threads("otel-specdecode-memory"))
        assert proc.open_probes() == []
    """
    run(fork(child))


@pytest.mark.parametrize("moment", ["opened", "closed"])
def test_a_fork_waits_until_a_probe_that_is_being_opened_or_closed_is_so(moment: str) -> None:
    """A file that is open and that nobody has been given yet is one that the child would keep for ever."""
    run(
        f"""
        moment, make_probe = "{moment}", peak_sampler._make_probe
        amid, go_on = threading.Event(), threading.Event()

        def hold_up():
            if not amid.is_set():
                amid.set()
                go_on.wait(30)

        class Probe:
            def __init__(self):
                self.real = make_probe()
                if moment == "opened":
                    hold_up()

            def read(self):
                return self.real.read()

            def close(self):
                if moment == "closed":
                    hold_up()
                self.real.close()

        peak_sampler._make_probe = Probe
        os.register_at_fork(before=go_on.set)  # the one registered last comes first
        running = stream()
        next(running)
        recorder.drain(20)
        if moment == "closed":
            list(running)
        assert amid.wait(30) and proc.open_probes()
        child = os.fork()
        if child == 0:
            os._exit(len(proc.open_probes()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )


def test_the_child_of_a_fork_reads_its_own_memory() -> None:
    """Not its parent's: that holds 400 MB more, and had a lifetime peak that was higher still."""
    program = """
    with proc.taken(900 * MIB):
        pass
    """ + fork(
        child="""
        before = proc.resident()
        quiet, loud, after = request(), request(take), request()
        assert before - COUNTERS <= quiet[PEAK] < before + 60 * MIB, (before, quiet)
        assert loud[PEAK] >= before + 190 * MIB, (before, loud)
        assert after[PEAK] < before + 60 * MIB, (before, after)
        assert abs(after[LIFETIME] - proc.highest_resident()) < COUNTERS, (proc.highest_resident(), after)
        """,
    )
    run(program)


def test_the_parent_of_a_fork_goes_on_reading() -> None:
    parent = """
        telemetry.clear()
        before = proc.resident()
        take()
        open_stream.close()
        assert dict(telemetry.span().attributes)[PEAK] >= before + 190 * MIB
        assert request()[PEAK] < before + 60 * MIB
        proc.wait_for(lambda: not proc.threads("otel-specdecode-memory"))
        assert proc.open_probes() == []
    """
    run(fork(child="request(take)", parent=parent))


def test_the_child_of_a_fork_watches_the_machine_itself() -> None:
    """Its readings begin anew, so it first says unknown; it has one thread of its own for them."""
    child = """
        assert proc.threads("otel-specdecode-host") == []
        request()
        proc.wait_for(lambda: watch.state().memory_available.known)
        assert request()["specdecode.host.memory_pressure"] != "unknown"
        assert len(proc.threads("otel-specdecode-host")) == 1
        seconds = telemetry.total("specdecode.host.memory_pressure.time")
        assert seconds < 20, seconds
        listener.close()
        proc.wait_for(lambda: not proc.threads("otel-specdecode-host"))
    """
    run(fork(child))


def test_a_stream_of_the_parent_that_the_child_ends_tells_nothing_and_harms_nothing() -> None:
    child = """
        telemetry.clear()
        open_stream.close()
        assert telemetry.spans() == ()
        assert PEAK in request()
    """
    run(fork(child, parent="assert len(list(open_stream)) == 999"))


def test_forks_while_32_threads_have_requests_lock_nothing_up() -> None:
    """Whatever lock is held at the moment of a fork is a new one in the child."""
    program = """
    stop = threading.Event()

    def requests():
        while not stop.is_set():
            list(stream())
            recorder.drain(20)  # no more is waiting than there are threads

    running = [threading.Thread(target=requests, daemon=True) for _ in range(32)]
    for thread in running:
        thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            before = proc.resident()
            list(stream())
            found = dict(telemetry.spans()[-1].attributes)
            os._exit(0 if before - COUNTERS <= found[PEAK] <= found[LIFETIME] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set()
    for thread in running:
        thread.join()
    proc.wait_for(lambda: not proc.threads("otel-specdecode-memory"))
    assert proc.open_probes() == [] and not peak_sampler._open
    """
    run(program)


def test_a_fork_at_the_moment_of_a_recording_leaves_the_child_able_to_record() -> None:
    """The recording thread is inside a lock of the SDK, which would be held for ever in the child."""
    program = """
    import opentelemetry.sdk.metrics._internal.aggregation as aggregation
    inside, go_on = threading.Event(), threading.Event()
    bisect = aggregation.bisect_left

    def recording(*arguments):
        if threading.current_thread().name == "otel-specdecode-recorder" and not inside.is_set():
            inside.set()
            go_on.wait(30)
        return bisect(*arguments)

    request()
    aggregation.bisect_left = recording
    list(stream())
    assert inside.wait(30)
    threading.Timer(0.2, go_on.set).start()
    child = os.fork()
    if child == 0:
        os._exit(0 if PEAK in request() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    run(program)


def test_a_request_that_is_recorded_late_is_not_charged_with_what_was_taken_after_it() -> None:
    run(
        """
        request()
        telemetry.clear()
        before, behind = proc.resident(), threading.Event()
        with proc.taken(600 * MIB):
            pass
        recorder.put(lambda: behind.wait(30))
        list(stream())
        with proc.taken(200 * MIB):
            behind.set()
            found = dict(telemetry.span().attributes)
        assert before - COUNTERS <= found[PEAK] < before + 60 * MIB, (before, found)
        """
    )


def test_a_process_is_not_charged_with_the_memory_of_the_one_that_started_it() -> None:
    """getrusage(2) on Linux hands the high-water mark of the program before on to the next, across exec."""
    with proc.taken(600 * proc.MIB):
        printed = run(
            """
            found = request()
            print(found[LIFETIME], proc.highest_resident())
            """
        )
    told, highest = map(int, printed.split())
    assert told == pytest.approx(highest, abs=proc.COUNTERS)


def test_a_new_record_is_exact_also_below_the_peak_of_the_process_that_started_this_one() -> None:
    """So short that no reading falls into it: no thread reads here."""
    with proc.taken(600 * proc.MIB):
        run(
            """
            peak_sampler._start = lambda: None
            before = proc.resident()
            def rise():
                recorder.drain(20)  # the reading at the beginning is over
                with proc.taken(200 * MIB):
                    pass
            found = request(rise)
            assert found[PEAK] >= before + 190 * MIB, (before, found)
            """
        )


def test_a_process_ends_at_once_with_a_request_open() -> None:
    """It waits for no reading, and not for the time that the thread waits for another request."""
    printed = run(
        """
        list(stream())
        open_stream = stream()
        next(open_stream)
        peak_sampler._linger = 60
        proc.wait_for(lambda: proc.threads("otel-specdecode-memory"))
        telemetry.spans()
        print(time.monotonic())
        """
    )
    assert time.monotonic() - float(printed) < AT_ONCE


def test_a_process_that_nobody_told_to_end_goes_on_without_a_sampler() -> None:
    """The thread of the sampler ends by itself; the process has no descriptor more than before its first request."""
    run(
        """
        list(stream())
        proc.wait_for(lambda: watch.state().memory_available.known)  # the watcher opens files while it reads
        proc.wait_for(lambda: not proc.threads("otel-specdecode-memory"))
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(200):
            list(stream())
        proc.wait_for(lambda: not proc.threads("otel-specdecode-memory"))
        proc.wait_for(lambda: sorted(os.listdir("/proc/self/fd")) == before)
        assert threading.active_count() == 3, threading.enumerate()  # this one, the recorder and the watcher
        """
    )


@pytest.mark.parametrize("name", ["a-studio", "x" * 65, ""])
def test_the_profile_is_the_one_given_or_the_machines_own(name: str) -> None:
    """One that is empty or longer than 64 characters is no profile."""
    printed = run(
        'print(request()["specdecode.machine_profile"])',
        OTEL_SPECDECODE_MACHINE_PROFILE=name,
    )
    assert printed.strip() == (name if name == "a-studio" else proc.profile())
