"""What a machine's state is made of: every value with where it came from, or why it is unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Generic, Literal, TypeVar, get_args

PowerMode = Literal["low", "automatic", "high", "unknown"]
PowerSource = Literal["ac", "battery", "unknown"]
ThermalState = Literal["nominal", "fair", "serious", "critical", "unknown"]
MemoryPressure = Literal["normal", "warn", "critical", "unknown"]

STATES: dict[str, tuple[str, ...]] = {
    "power_mode": get_args(PowerMode),
    "power_source": get_args(PowerSource),
    "thermal_state": get_args(ThermalState),
    "memory_pressure": get_args(MemoryPressure),
}
"""The enums of a HostState by field name, each with all its members."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Reading(Generic[T_co]):
    """One value and where it came from, or that it is unknown and why.

    Attributes:
        value: What was read. "unknown" for a state and None for a number where it could not be.
        source: What a known value was read from; empty for an unknown one.
        why_unknown: Why an unknown value is not known; empty for a known one.
    """

    value: T_co
    source: str = ""
    why_unknown: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError unless there is a source for a known value, and a reason for an unknown one."""
        if self.known != bool(self.source) or self.known == bool(self.why_unknown):
            raise ValueError("a known value has a source, an unknown one has a reason")

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None and self.value != "unknown"


def no_state(why: str) -> Reading[Literal["unknown"]]:
    """Return the reading of a state that is not known."""
    return Reading("unknown", why_unknown=why)


def no_number(why: str) -> Reading[None]:
    """Return the reading of a number that is not known."""
    return Reading(None, why_unknown=why)


def guarded(read: Callable[[], Reading[T]], unknown: Callable[[str], Reading[T]]) -> Reading[T]:
    """Return what a function reads; if it raises, an unknown value that says so."""
    try:
        return read()
    except Exception as error:
        return unknown(f"reading it failed ({type(error).__name__})")


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of the machine at one moment.

    Attributes:
        power_mode: What the user or the system chose: less power, the default, or more.
        power_source: Mains or battery.
        battery_charge: 0 to 1; unknown where there is no battery.
        thermal_state: `fair` is warm, from `serious` on the machine is slowed down to cool.
        memory_pressure: How short of memory the system says it is.
        swap_used: Bytes in swap, of all processes.
        swapped_in: Bytes read back from swap since the system started. Not page-ins, which count mapped files too.
        swapped_out: Bytes written to swap since the system started.
        memory_available: Bytes that can still be allocated without swapping, by the system's own estimate.
        memory_limit: Bytes that there are at all: the memory of the machine, or the limit of the process's cgroup.
    """

    power_mode: Reading[PowerMode]
    power_source: Reading[PowerSource]
    battery_charge: Reading[float | None]
    thermal_state: Reading[ThermalState]
    memory_pressure: Reading[MemoryPressure]
    swap_used: Reading[int | None]
    swapped_in: Reading[int | None]
    swapped_out: Reading[int | None]
    memory_available: Reading[int | None]
    memory_limit: Reading[int | None]

    def readings(self) -> dict[str, Reading[object]]:
        """Return all readings by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def unknown_host(why: str) -> HostState:
    """Return a state of which nothing is known, for one reason."""
    return HostState(
        power_mode=no_state(why),
        power_source=no_state(why),
        battery_charge=no_number(why),
        thermal_state=no_state(why),
        memory_pressure=no_state(why),
        swap_used=no_number(why),
        swapped_in=no_number(why),
        swapped_out=no_number(why),
        memory_available=no_number(why),
        memory_limit=no_number(why),
    )
