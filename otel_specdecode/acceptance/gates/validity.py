"""Whether a run counts at all: warm-up, length, power, memory, sleep, side load, age."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from otel_specdecode.acceptance import storage
from otel_specdecode.acceptance.frozen import NOTES
from otel_specdecode.acceptance.gates.policy import Validity, number
from otel_specdecode.acceptance.gates.stretches import DAY, Stretch, longest, pauses, stretches
from otel_specdecode.acceptance.records import Arm, HostSample, Run

Held = Literal["held", "broken", "not measured", "noted"]

_UNKNOWN: Final = "unknown"
_CLOCKS_APART: Final = 600.0
"""Seconds by which the clocks of two machines may differ."""


@dataclass(frozen=True, slots=True)
class ValidityItem:
    """One condition.

    Attributes:
        id: Its name.
        title: What it demands, in a few words.
        status: `held`, `broken` or `not measured`; `noted` is what the user noted.
        why: What was seen.
        counts: Whether the run is invalid unless it is held; what nobody can read off a machine does not count.
    """

    id: str
    title: str
    status: Held
    why: str
    counts: bool = True


class _Watched(NamedTuple):
    """A run by what was measured without a break."""

    run_id: str
    stretches: tuple[Stretch, ...]

    @property
    def samples(self) -> list[HostSample]:
        """The samples of the machine meanwhile."""
        return [each for stretch in self.stretches for each in stretch.host]


def validity_of(
    validity: Validity, run: Run, soak: Run | None, arm: Arm | None, now: float
) -> tuple[ValidityItem, ...]:
    """Return all conditions.

    Args:
        validity: What they demand.
        run: The run that is judged.
        soak: The soak beside it; None if there is none, or the run is one.
        arm: The arm that is judged; None if there is none.
        now: Seconds since the epoch.
    """
    runs = (run,) if soak is None else (run, soak)
    sign_off = soak or (run if run.head.kind == "soak" else None)
    watched = tuple(_Watched(each.head.run_id, stretches(each)) for each in runs)
    on_mains = _state(
        validity, watched, "power_source", "on mains throughout", lambda each: each.power_source, "battery"
    )
    full_power = _state(
        validity, watched, "power_mode", "no low-power mode throughout", lambda each: each.power_mode, "low"
    )
    return (
        _unless_unread(_warm_up(validity, watched), runs, storage.NOTES),
        _unless_unread(_soak(validity, sign_off, arm), () if sign_off is None else (sign_off,), storage.NOTES),
        _unless_unread(on_mains, runs, storage.HOST),
        _unless_unread(full_power, runs, storage.HOST),
        _unless_unread(_free_memory(validity, watched), runs, storage.HOST),
        _unless_unread(_awake(validity, watched), runs, storage.HOST),
        _unless_unread(_side_load(watched), runs, storage.HOST),
        _age(validity, runs, now),
        _unless_unread(_one_manifest(runs), runs, storage.NOTES),
        *_notes(runs),
        *_faults(runs),
    )


def _warm_up(validity: Validity, runs: tuple[_Watched, ...]) -> ValidityItem:
    title = f"warm-up of {validity.warm_up:g} s before the first request that counts"
    found = [(run, each) for run in runs for each in run.stretches]
    times = [(each.warm_up, run.run_id) for run, each in found if each.warm_up is not None]
    if not times or len(times) < len(found):
        return ValidityItem("warm_up", title, "not measured", "nothing tells when it began")
    shortest, run_id = min(times)
    status: Held = "held" if shortest >= validity.warm_up else "broken"
    of = f", the shortest of {len(times)}" if len(times) > 1 else ""
    return ValidityItem("warm_up", title, status, f"{shortest:.0f} s in {run_id}{of}")


def _soak(validity: Validity, soak: Run | None, arm: Arm | None) -> ValidityItem:
    title = f"sign-off soak of {validity.soak / 60:g} min without a break"
    if soak is None:
        return ValidityItem("soak", title, "not measured", "no soak was given")
    lasted = 0.0 if arm is None else longest(soak, arm, validity.pause)
    name = "" if arm is None else f" of {arm.name}"
    ran = ", ".join(each.name for each in soak.head.arms if each.speculative)
    other = "" if arm is None or arm in soak.head.arms else f", which ran {ran or 'no draft'}"
    status: Held = "held" if lasted >= validity.soak else "broken"
    gaps = [] if arm is None or status == "held" else pauses(soak, arm, validity.pause)
    breaks = (
        f"; {len(gaps)} times it paused for more than {validity.pause:g} s, {max(gaps):.0f} s at most" if gaps else ""
    )
    return ValidityItem("soak", title, status, f"{lasted / 60:.1f} min{name} in {soak.head.run_id}{other}{breaks}")


def _state(
    validity: Validity, runs: tuple[_Watched, ...], name: str, title: str, read: Callable[[HostSample], str], bad: str
) -> ValidityItem:
    """Hold a state against the one that must not be."""
    seen = [each for run in runs for each in run.samples]
    wrong = [each for each in seen if read(each) == bad]
    if wrong:
        return ValidityItem(name, title, "broken", f"{bad} in {len(wrong)} of {len(seen)} samples")
    return _unless_blind(validity, runs, name, title, lambda each: read(each) != _UNKNOWN, f"{len(seen)} samples")


def _free_memory(validity: Validity, runs: tuple[_Watched, ...]) -> ValidityItem:
    floor = number(validity.free_memory)
    title = f"at least {floor:.0%} of memory available throughout"
    shares = [share for run in runs for each in run.samples for share in _share(each)]
    if shares and min(shares) < floor:
        return ValidityItem("free_memory", title, "broken", f"down to {min(shares):.1%}")
    seen = f"not below {min(shares):.1%}" if shares else ""
    return _unless_blind(validity, runs, "free_memory", title, lambda each: any(True for _ in _share(each)), seen)


def _awake(validity: Validity, runs: tuple[_Watched, ...]) -> ValidityItem:
    title = "the machine never slept"
    pairs = [pair for run in runs for stretch in run.stretches for pair in stretch.neighbours]
    gaps = [(after.at - before.at) - (after.monotonic - before.monotonic) for before, after in pairs]
    asleep = [gap for gap in gaps if gap > validity.sleep]
    if asleep:
        return ValidityItem("awake", title, "broken", f"asleep {len(asleep)} times, {max(asleep):.0f} s at most")
    return _unless_blind(validity, runs, "awake", title, _sampled, f"{len(pairs)} gaps between samples")


def _side_load(runs: tuple[_Watched, ...]) -> ValidityItem:
    title = "side load recorded: browser, IDE, indexer"
    for run in runs:
        if not run.stretches or not all(map(_loads, run.stretches)):
            return ValidityItem("side_load", title, "not measured", f"{run.run_id} has none")
    found = [load for run in runs for stretch in run.stretches for load in _loads(stretch)]
    groups = dict.fromkeys(group for load in found for group in load)
    means = {group: sum(load.get(group, 0.0) for load in found) / len(found) for group in groups}
    told = ", ".join(f"{group} {cores:.2f}" for group, cores in means.items())
    return ValidityItem("side_load", title, "held", f"cores in the mean of {len(found)} readings: {told}")


def _age(validity: Validity, runs: tuple[Run, ...], now: float) -> ValidityItem:
    title = f"results of at most {validity.max_age:g} days"
    times = [each.started_at for run in runs for each in run.measured]
    if not times:
        return ValidityItem("age", title, "not measured", "there is no result")
    days, ahead = (now - min(times)) / DAY, max(times) - now
    if ahead > _CLOCKS_APART:
        why = f"the newest is from {ahead / DAY:.1f} days ahead of now: a clock was, or is, wrong"
        return ValidityItem("age", title, "broken", why)
    status: Held = "held" if days <= validity.max_age else "broken"
    return ValidityItem(
        "age", title, status, f"the oldest is {days:.1f} days old{'' if status == 'held' else ': expired'}"
    )


def _one_manifest(runs: tuple[Run, ...]) -> ValidityItem:
    title = "all of it of one manifest"
    changes = [note.why for run in runs for note in run.notes if note.what == "changed"]
    if changes:
        return ValidityItem("one_manifest", title, "broken", f"it was gone on with all the same: {'; '.join(changes)}")
    return ValidityItem("one_manifest", title, "held", str(runs[0].head.manifest.get("id")))


def _notes(runs: tuple[Run, ...]) -> Iterator[ValidityItem]:
    """Yield what the user noted, or that nobody did."""
    for name in NOTES:
        found: dict[str, None] = {}
        for run in runs:
            notes = run.head.conditions.get("notes")
            if isinstance(notes, Mapping) and notes.get(name):
                found[str(notes[name])] = None
        title = name.replace("_", " ")
        status: Held = "noted" if found else "not measured"
        yield ValidityItem(name, title, status, "; ".join(found) or "nobody noted it", counts=False)


def _faults(runs: tuple[Run, ...]) -> Iterator[ValidityItem]:
    """Yield which lines could not be read, of all files."""
    faults = [fault for run in runs for fault in run.faults]
    if faults:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        lost = sum(1 for each in faults if _is_of(each, storage.RESULTS))
        told = f"; {lost} of {storage.RESULTS}, where one that is lost is only a sample less" if lost else ""
        yield ValidityItem("lines", "lines that could not be read", "noted", f"{faults[0]}{more}{told}", counts=False)


def _unless_unread(item: ValidityItem, runs: tuple[Run, ...], file: str) -> ValidityItem:
    """Return a condition, not measured where it held by a file of which a line could not be read, as that may say else.

    What is broken stays broken: the run does not count either way.
    """
    faults = [fault for run in runs for fault in run.faults if _is_of(fault, file)]
    if item.status != "held" or not faults:
        return item
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return replace(item, status="not measured", why=f"a line could not be read, {faults[0]}{more}")


def _is_of(fault: str, file: str) -> bool:
    return fault.startswith(f"{file}:")


def _unless_blind(
    validity: Validity,
    runs: tuple[_Watched, ...],
    name: str,
    title: str,
    knows: Callable[[HostSample], bool],
    seen: str,
) -> ValidityItem:
    """Return that a condition held, unless nothing tells for too long."""
    for run in runs:
        blind = max((each.longest_blind(knows) for each in run.stretches), default=None)
        if blind is None:
            return ValidityItem(name, title, "not measured", f"{run.run_id} has no request that counts")
        known = any(map(knows, run.samples))
        if blind > validity.blind or not known:
            why = f"not known for {blind:.0f} s of {run.run_id}" if known else f"not known in {run.run_id}"
            return ValidityItem(name, title, "not measured", why)
    return ValidityItem(name, title, "held", seen)


def _sampled(_sample: HostSample) -> bool:
    return True


def _share(sample: HostSample) -> Iterator[float]:
    if sample.memory_available is not None and sample.memory_limit:
        yield sample.memory_available / sample.memory_limit


def _loads(stretch: Stretch) -> list[dict[str, float]]:
    return [each.side_load for each in stretch.host if each.side_load is not None]
