"""A guard's baseline out of a run: what its autoregressive requests took, by the conditions that a guard compares."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.figures import MICROSECONDS, busy_seconds, tier_of
from otel_specdecode.acceptance.records import HostSample, Measured, Run
from otel_specdecode.acceptance.report.writing import replaceable
from otel_specdecode.guard.baseline import Conditions, Usual, band_of, quantile
from otel_specdecode.guard.baseline_file import write_baseline
from otel_specdecode.thresholds import thresholds

OPERATIONS = ("text_completion", "chat")
"""The operations of requests that decode; a run's requests take the same time under either name."""


def baseline_of(run: Run, operations: Sequence[str] = OPERATIONS) -> dict[Conditions, Usual]:
    """Return what the autoregressive requests of a run took.

    Args:
        run: A sweep or a soak; requests at a temperature above 0 do not count.
        operations: What a service's requests are called on spans, `gen_ai.operation.name`.

    Raises:
        AcceptanceError: Too few requests were alike to tell.
    """
    found: dict[tuple[str, int, str, str], list[Measured]] = defaultdict(list)
    for arm in run.head.arms:
        if arm.speculative or arm.temperature:
            continue
        for request in run.of(arm):
            host = _host_at(run.host, request.started_at)
            # Requests that wait for each other do not run at once, however many are asked for.
            at_once = arm.concurrency if request.queued is None else 1
            found[tier_of(request), at_once, host.power_mode, host.thermal_state].append(request)
    least = thresholds()["samples"]["baseline_requests"]
    enough = {conditions: requests for conditions, requests in found.items() if len(requests) >= least}
    if not enough:
        most = max(map(len, found.values()), default=0)
        raise AcceptanceError(
            f"the run has {most} autoregressive requests under like conditions, and a baseline takes {least}: sweep "
            "with more prompts or --repeats."
        )
    name = _name(run)
    return {
        Conditions(run.head.engine, name, operation, tier, band_of(at_once), *state): _usual(requests)
        for (tier, at_once, *state), requests in enough.items()
        for operation in operations
    }


def write_guard_baseline(run: Run, path: Path, operations: Sequence[str] = OPERATIONS) -> int:
    """Write the baseline of a run to a file that a guard's policy can name.

    Returns:
        How many combinations of conditions are in it.

    Raises:
        AcceptanceError: Too few requests were alike to tell, or it cannot be written.
    """
    known = baseline_of(run, operations)
    try:
        write_baseline(replaceable(path), known)
    except OSError as error:
        raise AcceptanceError(f"{path} cannot be written ({error.strerror}).") from None
    return len(known)


def _usual(requests: Sequence[Measured]) -> Usual:
    times = [each.time_per_token for each in requests if each.time_per_token]
    firsts = [each.time_to_first_token for each in requests if each.time_to_first_token is not None]
    passes = [
        sum(each.passes.microseconds) / len(each.passes.microseconds) / MICROSECONDS
        for each in requests
        if each.passes.microseconds
    ]
    busy = busy_seconds(requests)
    return Usual(
        round_seconds=_quantile(passes, 0.5),
        time_per_token_p50=_quantile(times, 0.5),
        time_per_token_p95=_quantile(times, 0.95),
        time_to_first_token_p50=_quantile(firsts, 0.5),
        tokens_per_second=sum(each.output_tokens for each in requests) / busy if busy else None,
        requests=len(requests),
    )


def _quantile(values: Sequence[float], share: float) -> float | None:
    return quantile(values, share) if values else None


def _host_at(samples: Sequence[HostSample], at: float) -> HostSample:
    place = bisect_right(samples, at, key=lambda sample: sample.at)
    return samples[max(place - 1, 0)] if samples else HostSample(at, 0.0)


def _name(run: Run) -> str | None:
    target = run.head.manifest.get("target")
    name = target.get("name") if isinstance(target, dict) else None
    return name if isinstance(name, str) else None
