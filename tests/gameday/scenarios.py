"""What a machine does from minute to minute: how its requests are, and how it is itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from otel_specdecode.host.state import HostState, Reading

GIB = 1024**3
CALM: Mapping[str, float] = {"acme": 3, "globex": 2, "initech": 2, "umbrella": 1}
"""Tenants by the share of the requests that are theirs."""


@dataclass(frozen=True)
class Conditions:
    """How requests and machine are; the defaults are those of an ordinary day.

    Attributes:
        chance: For each proposed token to be accepted.
        chances: Of tenants whose texts are another matter.
        traffic: Requests a second.
        pace: Times 26 ms: what a target pass takes.
        draft_pace: Times 3 ms: what a draft pass takes.
        prompt: Tokens of an ordinary prompt.
        temperature: Of the requests.
        tenants: By their share.
        engine: Version of the engine's package.
        draft: Fingerprint and name of the draft.
        thermal_state: As the machine says it.
        memory_pressure: Likewise.
        swapping: Bytes a second that go out to swap.
        footprint: Bytes of the process.
    """

    chance: float = 0.78
    chances: Mapping[str, float] = field(default_factory=dict)
    traffic: float = 0.8
    pace: float = 1.0
    draft_pace: float = 1.0
    prompt: int = 300
    temperature: float = 0.0
    tenants: Mapping[str, float] = field(default_factory=lambda: CALM)
    engine: str = "0.32.2"
    draft: str = "draft-0.5b"
    thermal_state: str = "nominal"
    memory_pressure: str = "normal"
    swapping: float = 0.0
    footprint: float = 9 * GIB


ORDINARY = Conditions()


@dataclass(frozen=True)
class Scenario:
    """One thing that goes wrong.

    Attributes:
        cause: In words, for whoever judges.
        changed: What holds from its start on.
        machines: Those it happens on.
        restarts: Whether the service starts anew for it, as for a deploy.
        tenants: Whose requests it is about, where it is about some.
    """

    cause: str
    changed: Conditions
    machines: tuple[str, ...]
    restarts: bool = False
    tenants: tuple[str, ...] = ()


MACHINES = ("mac-a", "mac-b")

SCENARIOS: Mapping[str, Scenario] = {
    "bad_draft": Scenario(
        "a deploy on mac-b brings another draft, which is rejected most of the time",
        replace(ORDINARY, chance=0.15, draft="draft-0.5b-r2"),
        ("mac-b",),
        restarts=True,
    ),
    "mix_shift": Scenario(
        "on both machines prompts become long and are sampled at temperature 1, which the draft cannot follow",
        replace(ORDINARY, chance=0.5, prompt=1_800, temperature=1.0),
        MACHINES,
    ),
    "throttle": Scenario(
        "mac-a gets hot and slows down",
        replace(ORDINARY, pace=1.6, draft_pace=1.6, thermal_state="serious"),
        ("mac-a",),
    ),
    "swap": Scenario(
        "mac-b runs out of memory and swaps",
        replace(ORDINARY, pace=1.5, draft_pace=2.0, memory_pressure="critical", swapping=12e6, footprint=33 * GIB),
        ("mac-b",),
    ),
    "version_change": Scenario(
        "a deploy on mac-a brings another version of the engine, whose draft passes take 3.5 times as long",
        replace(ORDINARY, draft_pace=3.5, engine="0.33.0"),
        ("mac-a",),
        restarts=True,
    ),
    "noisy_tenant": Scenario(
        "one tenant sends four times its requests, of texts that the draft knows nothing of",
        replace(ORDINARY, traffic=1.4, tenants={**CALM, "hooli": 6}, chances={"hooli": 0.05}),
        MACHINES,
        tenants=("hooli",),
    ),
}


def host_state(now: Conditions, swapped_out: int) -> HostState:
    """Return the state of a machine of 36 GiB."""
    source = "simulated"
    swap = 1 * GIB + swapped_out
    return HostState(
        power_mode=Reading("automatic", source),
        power_source=Reading("ac", source),
        battery_charge=Reading(1.0, source),
        thermal_state=Reading(now.thermal_state, source),  # type: ignore[arg-type]
        memory_pressure=Reading(now.memory_pressure, source),  # type: ignore[arg-type]
        swap_used=Reading(swap, source),
        swapped_in=Reading(swapped_out // 2, source),
        swapped_out=Reading(swapped_out, source),
        memory_available=Reading(round(36 * GIB - now.footprint - 3 * GIB), source),
        memory_limit=Reading(36 * GIB, source),
    )
