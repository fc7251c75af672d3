"""Measures of memory, swap, pressure and heat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from otel_specdecode.acceptance.endurance import THROTTLED
from otel_specdecode.acceptance.gates.reading import Case, Evidence, Reading, UnmeasuredError, of_machine
from otel_specdecode.acceptance.gates.stretches import DAY, Stretch, stretches
from otel_specdecode.acceptance.records import Arm, HostSample, Run
from otel_specdecode.acceptance.storage import RESULTS
from otel_specdecode.thresholds import thresholds


def peak_memory(case: Case) -> Reading:
    """Return the highest memory of all requests of the arm, in bytes."""
    runs = [run for run in case.runs if run.of(case.arm)]
    peak, what = _peak(runs, case.arm)
    evidence = tuple(Evidence(run.head.run_id, RESULTS, len(run.of(case.arm)), "requests") for run in runs)
    return Reading(peak, peak, peak, sum(each.samples for each in evidence), evidence, what)


def peak_memory_share(case: Case) -> Reading:
    """Return the same as a share of the memory that the machine has."""
    peak = peak_memory(case)
    physical = physical_memory(case.run)
    if physical is None:
        raise UnmeasuredError("how much memory the machine has is not known")
    share = peak.value / physical
    return Reading(share, share, share, peak.samples, peak.evidence, peak.detail)


def memory_rise(case: Case) -> Reading:
    """Return by what share the peak is above that of the target alone, before a draft was loaded.

    It does not matter where the machine hardly swaps.
    """
    gate = case.gate
    if case.arm.concurrency > 1:
        raise UnmeasuredError(f"the target ran alone with one request at a time, {case.arm.name} with more")
    speculative, what = _peak([case.run], case.arm)
    plain = case.run.head.alone.get("peak_footprint" if what == "footprint" else "peak_rss")
    if not plain:
        raise UnmeasuredError(f"{case.run.head.run_id} has no request from before its drafts were loaded")
    rise = speculative / plain - 1
    episodes, days = swap_episodes(case.runs)
    told = f"{episodes} swap episodes in {days:.2g} days"
    holds = gate.holds(rise, rise, rise)
    if holds is False and gate.swap_episodes is not None and episodes < gate.swap_episodes:
        if gate.days is not None and days < gate.days:
            raise UnmeasuredError(f"memory rises by {rise:.1%}; {told}, which is no count over {gate.days:g} days")
        holds = True
    count = len(case.run.of(case.arm))
    evidence = Evidence(case.run.head.run_id, RESULTS, count, "requests")
    return Reading(rise, rise, rise, count, (evidence,), told, holds)


def swap_growth(case: Case) -> Reading:
    """Return how far swap in use rose above its lowest before, in bytes; the most of all runs."""
    return of_machine(max(map(_growth, case.runs)), case.runs)


def swapped_in(case: Case) -> Reading:
    """Return the bytes that were read back from swap over the run."""
    return of_machine(_moved(case.run, lambda each: each.swapped_in), (case.run,))


def swapped_out(case: Case) -> Reading:
    """Return the bytes that were written to swap over all runs."""
    return of_machine(sum(_moved(run, lambda each: each.swapped_out) for run in case.runs), case.runs)


def pressure_critical(case: Case) -> Reading:
    """Return for how many seconds memory pressure was critical; the most of all runs."""
    worst = 0.0
    for run in case.runs:
        known = _seconds(run, lambda each: each.memory_pressure == "critical")
        unknown = _seconds(run, lambda each: each.memory_pressure == "unknown") if run.host else float("inf")
        worst = max(worst, known)
        if case.gate.holds(known, known, known) != case.gate.holds(known + unknown, known, known + unknown):
            raise UnmeasuredError(f"memory pressure of {run.head.run_id} is not known{_for(unknown)}")
    return of_machine(worst, case.runs)


def throttle_events(case: Case) -> Reading:
    """Return how often the machine began to slow down, by heat or to save power; over all runs."""
    events = sum(_begun(run, lambda each: each.thermal_state in THROTTLED) for run in case.runs)
    events += sum(_begun(run, lambda each: each.power_mode == "low") for run in case.runs)
    if case.gate.holds(events, events, events):  # more of them, where nobody looked, would change that
        for run in case.runs:
            _demand(case, run, "thermal state", lambda each: each.thermal_state != "unknown")
            _demand(case, run, "power mode", lambda each: each.power_mode != "unknown")
    return of_machine(events, case.runs)


def physical_memory(run: Run) -> float | None:
    """Return the memory that a run's machine has, in bytes: less where a container has less."""
    limits = [each.memory_limit for each in run.host if each.memory_limit]
    machine = run.head.manifest.get("machine")
    total = machine.get("memory") if isinstance(machine, dict) else None
    return float(min(limits)) if limits else float(total) if isinstance(total, int) and total else None


def swap_episodes(runs: Iterable[Run]) -> tuple[int, float]:
    """Return how often a machine began to swap out after a quiet while, and over how many days it was watched."""
    quiet = thresholds()["host"]["swap_quiet"]
    episodes, seconds = 0, 0.0
    for stretch in (each for run in runs for each in stretches(run)):
        last = -float("inf")
        seconds += stretch.end - stretch.start
        for before, after in stretch.neighbours:
            was, is_now = before.swapped_out, after.swapped_out
            if was is not None and is_now is not None and is_now > was:
                episodes += after.at - last > quiet
                last = after.at
    return episodes, seconds / DAY


def _peak(runs: Sequence[Run], arm: Arm) -> tuple[float, str]:
    """Return the highest memory of an arm's requests, and what it is: only a footprint holds Metal's memory."""
    requests = [each for run in runs for each in run.of(arm)]
    footprints = [each.peak_footprint for each in requests if each.peak_footprint is not None]
    resident = [each.peak_rss for each in requests if each.peak_rss is not None]
    if not footprints and not resident:
        raise UnmeasuredError(f"no request of {arm.name} tells its memory")
    return (float(max(footprints)), "footprint") if footprints else (float(max(resident)), "resident")


def _growth(run: Run) -> float:
    used = [each.swap_used for stretch in _watched(run) for each in stretch.host if each.swap_used is not None]
    if len(used) < 2:
        raise UnmeasuredError(f"{run.head.run_id} has no samples of swap in use")
    lowest, most = used[0], 0
    for each in used:
        lowest = min(lowest, each)
        most = max(most, each - lowest)
    return float(most)


def _moved(run: Run, counter: Callable[[HostSample], int | None]) -> float:
    moved = 0
    for stretch in _watched(run):
        found = [value for each in stretch.host if (value := counter(each)) is not None]
        if len(found) < 2:
            raise UnmeasuredError(f"{run.head.run_id} has no samples of what is swapped")
        moved += found[-1] - found[0]
    return float(moved)


def _watched(run: Run) -> tuple[Stretch, ...]:
    found = stretches(run)
    if not found:
        raise UnmeasuredError(f"{run.head.run_id} has no request that counts")
    return found


def _seconds(run: Run, holds: Callable[[HostSample], bool]) -> float:
    """Return for how long something held, each sample speaking for the time up to the next."""
    pairs = [pair for stretch in stretches(run) for pair in stretch.neighbours]
    return sum(after.at - before.at for before, after in pairs if holds(before))


def _begun(run: Run, holds: Callable[[HostSample], bool]) -> int:
    """Return how often something began to hold, or held from the start."""
    found = 0
    for stretch in stretches(run):
        found += sum(1 for before, after in pairwise([False, *map(holds, stretch.host)]) if after and not before)
    return found


def _demand(case: Case, run: Run, what: str, knows: Callable[[HostSample], bool]) -> None:
    blind = max((stretch.longest_blind(knows) for stretch in stretches(run)), default=float("inf"))
    if blind > case.validity.blind or not any(map(knows, run.host)):
        raise UnmeasuredError(f"{what} of {run.head.run_id} is not known{_for(blind)}")


def _for(seconds: float) -> str:
    return f" for {seconds:.0f} s" if seconds < float("inf") else ""
