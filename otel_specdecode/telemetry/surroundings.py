"""Who ran what, where, and what the process and the machine were like: the part of a span that no token tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otel_specdecode.host.sampler import Peaks
from otel_specdecode.host.state import HostState
from otel_specdecode.telemetry.names import Attr

Value = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Value | None]


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request runs, and as a part of which run; None where it is not told."""

    run_id: str | None
    tenant: str | None
    session: str | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is not the generation itself.

    Attributes:
        caller: On whose behalf.
        manifest_id: Id of what ran, None if it is not known.
        machine_profile: On what kind of machine.
        host: The state of the machine.
        peaks: Memory of the process.
    """

    caller: Caller
    manifest_id: str | None
    machine_profile: str
    host: HostState
    peaks: Peaks


def surroundings_attributes(around: Surroundings) -> Attributes:
    """Return the attributes that every span has."""
    return {**caller_attributes(around.caller), **_identity(around), **_memory(around.peaks), **_host(around.host)}


def caller_attributes(caller: Caller) -> Attributes:
    """Return on whose behalf a request runs, as attributes."""
    return {
        Attr.SPECDECODE_RUN_ID: caller.run_id,
        Attr.SPECDECODE_TENANT_ID: caller.tenant,
        Attr.SPECDECODE_SESSION_ID: caller.session,
    }


def _identity(around: Surroundings) -> Attributes:
    return {
        Attr.SPECDECODE_MANIFEST_ID: around.manifest_id,
        Attr.SPECDECODE_MACHINE_PROFILE: around.machine_profile,
    }


def _memory(peaks: Peaks) -> Attributes:
    return {
        Attr.SPECDECODE_PROCESS_PEAK_RSS: peaks.resident,
        Attr.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME: peaks.resident_lifetime,
        Attr.SPECDECODE_PROCESS_PEAK_FOOTPRINT: peaks.footprint,
    }


def _host(host: HostState) -> Attributes:
    return {
        Attr.SPECDECODE_HOST_POWER_MODE: host.power_mode.value,
        Attr.SPECDECODE_HOST_POWER_SOURCE: host.power_source.value,
        Attr.SPECDECODE_HOST_THERMAL_STATE: host.thermal_state.value,
        Attr.SPECDECODE_HOST_MEMORY_PRESSURE: host.memory_pressure.value,
        Attr.SPECDECODE_HOST_SWAP_USED: host.swap_used.value,
    }
