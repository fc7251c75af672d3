"""Holds a run against a policy of gates. Pure: a run in, a verdict out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timezone
from typing import Any, Literal

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.frozen import differences
from otel_specdecode.acceptance.gates.measures import MEASURES
from otel_specdecode.acceptance.gates.policy import WORDS, Gate, GatesPolicy
from otel_specdecode.acceptance.gates.reading import Case, Evidence, Instead, Reading, UnmeasuredError
from otel_specdecode.acceptance.gates.validity import ValidityItem, validity_of
from otel_specdecode.acceptance.knee import Knee, knee
from otel_specdecode.acceptance.records import Arm, Run

GateStatus = Literal["pass", "fail", "waived", "not measured"]
Status = Literal["accepted", "rejected", "invalid"]


@dataclass(frozen=True, slots=True)
class Waived:
    """What the policy says of a waiver.

    Attributes:
        who: Who answers for the failure.
        reason: Why.
        expires: The last day on which it counts, as in 2026-01-31.
        expired: Whether that day is over; it then counts for nothing.
    """

    who: str
    reason: str
    expires: str
    expired: bool


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate says.

    Attributes:
        id: Its name.
        title: What it is good for.
        status: `waived` is a failure that somebody answers for.
        level: Whether a failure rejects the run, or is a warning.
        unit: Of value and threshold; `ratio` where they are over autoregressive decoding.
        bound: How the value must be to the threshold: `<=`, `>=`, `<`, `>`, or `+-` for at most so far from 0.
        threshold: The number.
        by: What is held against it, the value or its interval.
        value, low, high: What was measured, and its 95 % interval.
        samples, needs: What it is made of, and of how many at least.
        evidence: Where they stand.
        why: Why it was not measured; else what is worth telling beside it.
        waiver: The policy's waiver of this gate, whether it was needed or not.
    """

    id: str
    title: str
    status: GateStatus
    level: Literal["gate", "warning"]
    unit: str
    bound: str
    threshold: float
    by: Literal["value", "interval"]
    value: float | None
    low: float | None
    high: float | None
    samples: int
    needs: int
    evidence: tuple[Evidence, ...]
    why: str
    waiver: Waived | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run.

    Attributes:
        status: `invalid` says neither yes nor no: the run does not count, or a gate that decides was not measured.
        reasons: Why, a sentence each; empty where it is accepted.
        stay_on_ar: Whether the advice is to stay on autoregressive decoding.
        reason: The advice and its reason.
        arm: Name of the arm that was judged; None where there is none to choose.
        run_id, soak_id: What was judged.
        manifest_id: Of both.
        preset: What the policy was made from.
        policy: Digest of the policy.
        judged_at: When, in seconds since the epoch.
        gates: What each gate says.
        disabled: Names of the gates that the policy switches off.
        validity: What makes the run count.
    """

    status: Status
    reasons: tuple[str, ...]
    stay_on_ar: bool
    reason: str
    arm: str | None
    run_id: str
    soak_id: str | None
    manifest_id: str | None
    preset: str | None
    policy: str
    judged_at: float
    gates: tuple[GateResult, ...]
    disabled: tuple[str, ...]
    validity: tuple[ValidityItem, ...]


def evaluate(policy: GatesPolicy, run: Run, soak: Run | None = None, *, now: float, arm: str | None = None) -> Verdict:
    """Return the verdict on a run.

    Args:
        policy: What it is held against.
        run: A sweep, or a soak that has a stretch without a draft.
        soak: A soak of the same manifest.
        now: Seconds since the epoch.
        arm: Name of the arm to judge; None takes the fastest.

    Raises:
        AcceptanceError: The two runs are not of one manifest, the second is no soak, or there is no such arm.
    """
    _check_soak(run, soak)
    asked = _named(run, arm)
    advice = knee(run, None if asked is None else (asked,))
    judged = asked or (_only(run) if advice.best is None else advice.best.arm)
    results = tuple(
        _judge(policy, name, gate, run, soak, judged, now) for name, gate in policy.gates.items() if gate.enabled
    )
    validity = validity_of(policy.validity, run, soak, judged, now)
    status, reasons = _status(results, validity)
    manifest_id = run.head.manifest.get("id")
    return Verdict(
        status=status,
        reasons=reasons,
        stay_on_ar=status != "accepted" or advice.stay,
        reason=_advice(advice, status, reasons),
        arm=None if judged is None else judged.name,
        run_id=run.head.run_id,
        soak_id=None if soak is None else soak.head.run_id,
        manifest_id=manifest_id if isinstance(manifest_id, str) else None,
        preset=policy.preset,
        policy=policy.digest,
        judged_at=now,
        gates=results,
        disabled=tuple(name for name, gate in policy.gates.items() if not gate.enabled),
        validity=validity,
    )


def as_dict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict for JSON."""
    return asdict(verdict)


def _check_soak(run: Run, soak: Run | None) -> None:
    if soak is None:
        return
    if soak.head.kind != "soak":
        raise AcceptanceError(f"{soak.head.run_id} is a {soak.head.kind}, not a soak: name it in the place of the run.")
    if run.head.kind == "soak":
        raise AcceptanceError(f"{run.head.run_id} is a soak itself: name a sweep beside it, or leave --soak out.")
    found = differences(run.head.manifest, soak.head.manifest)
    if found or run.head.manifest.get("id") != soak.head.manifest.get("id"):
        told = "; ".join(found) or "their ids"
        raise AcceptanceError(
            f"{run.head.run_id} and {soak.head.run_id} are not of one manifest, so nothing follows from both: {told}."
        )


def _named(run: Run, name: str | None) -> Arm | None:
    if name is None:
        return None
    found = next((each for each in run.head.arms if each.name == name and each.speculative), None)
    if found is None:
        arms = ", ".join(f'"{each.name}"' for each in run.head.arms if each.speculative) or "none"
        raise AcceptanceError(f'{run.head.run_id} has no speculative arm "{name}"; it has {arms}.')
    return found


def _only(run: Run) -> Arm | None:
    """Return the only speculative arm of a run, such as a soak's, whose requests have no pair without a draft."""
    arms = [each for each in run.head.arms if each.speculative]
    return arms[0] if len(arms) == 1 else None


def _judge(
    policy: GatesPolicy, name: str, gate: Gate, run: Run, soak: Run | None, judged: Arm | None, now: float
) -> GateResult:
    measure = MEASURES[gate.measure]
    waiver = _waiver(policy, name, now)
    reading, why = None, ""
    try:
        reading = measure.read(_case(policy, gate, run, soak, judged))
        status = _against_bound(gate, reading, waiver)
    except UnmeasuredError as error:
        status, reading, why = "not measured", None, str(error)
    instead = None if reading is None else reading.instead
    held = instead or Instead(gate.limit, "ratio" if gate.over_autoregressive else measure.unit)
    return GateResult(
        id=name,
        title=gate.about,
        status=status,
        level=gate.level,
        unit=held.unit,
        bound=WORDS[gate.bound if instead is None else "at_most"],
        threshold=held.limit,
        by=gate.by,
        value=None if reading is None else reading.value,
        low=None if reading is None else reading.low,
        high=None if reading is None else reading.high,
        samples=0 if reading is None else reading.samples,
        needs=gate.samples * (gate.series or 1),
        evidence=() if reading is None else reading.evidence,
        why=why if reading is None else reading.detail,
        waiver=waiver,
    )


def _case(policy: GatesPolicy, gate: Gate, run: Run, soak: Run | None, judged: Arm | None) -> Case:
    if judged is None:
        raise UnmeasuredError("no speculative request could be compared with autoregressive decoding")
    chosen = run
    if gate.run == "soak" and run.head.kind != "soak":
        if soak is None:
            raise UnmeasuredError("no soak was given")
        chosen = soak
    arm = replace(
        judged, draft_length=gate.k or judged.draft_length, concurrency=gate.concurrency or judged.concurrency
    )
    arm = arm.baseline if gate.arm == "autoregressive" else arm
    if "arm" in MEASURES[gate.measure].keys and arm not in chosen.head.arms:
        raise UnmeasuredError(f"{chosen.head.run_id} has no arm {arm.name}")
    return Case(gate, policy.validity, chosen, (run,) if soak is None else (run, soak), arm)


def _against_bound(gate: Gate, reading: Reading, waiver: Waived | None) -> GateStatus:
    counted = f"{reading.samples} {reading.evidence[0].of}"
    if reading.samples < gate.samples:
        raise UnmeasuredError(f"{counted}, of {gate.samples} that it takes")
    holds = reading.holds
    if holds is None and reading.instead is not None:
        holds = reading.value <= reading.instead.limit
    elif holds is None:
        holds = gate.holds(reading.value, reading.low, reading.high)
    if holds is None:
        raise UnmeasuredError(f"{counted} are too few for an interval")
    if holds:
        return "pass"
    return "waived" if waiver is not None and not waiver.expired else "fail"


def _waiver(policy: GatesPolicy, gate: str, now: float) -> Waived | None:
    """Return the waiver of a gate that lasts longest."""
    found = max((each for each in policy.waivers if each.gate == gate), key=lambda each: each.expires, default=None)
    if found is None:
        return None
    return Waived(found.who, found.reason, found.expires.isoformat(), found.expires < _day(now))


def _day(now: float) -> date:
    return datetime.fromtimestamp(now, timezone.utc).date()


def _status(gates: tuple[GateResult, ...], validity: tuple[ValidityItem, ...]) -> tuple[Status, tuple[str, ...]]:
    broken = [each for each in validity if each.counts and each.status not in ("held", "noted")]
    if broken:
        return "invalid", tuple(f"{each.title}: {each.status}, {each.why}" for each in broken)
    deciding = [each for each in gates if each.level == "gate"]
    failed = [each.id for each in deciding if each.status == "fail"]
    if failed:
        return "rejected", tuple(f"{each} failed" for each in failed)
    unmeasured = [each for each in deciding if each.status == "not measured"]
    if unmeasured or not deciding:
        return "invalid", tuple(_unmeasured(unmeasured)) or ("the policy has no gate that decides",)
    return "accepted", ()


def _unmeasured(gates: list[GateResult]) -> Iterator[str]:
    return (f"{each.id} was not measured: {each.why}" for each in gates)


def _advice(advice: Knee, status: Status, reasons: tuple[str, ...]) -> str:
    """Return what speed says first: where speculation does not pay, all else is of no account."""
    if status == "accepted" or advice.stay:
        return advice.why
    word = "" if status == "rejected" else " for now"
    more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"Stay on autoregressive decoding{word}: {reasons[0]}{more}."
