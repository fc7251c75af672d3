"""Every reading of the host, with where it came from or why it is unknown."""

from __future__ import annotations

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.texts import one_line
from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory
from otel_specdecode.host.state import HostState, Reading

LAST_VERIFIED_ON_A_MAC = "never"
"""When somebody last compared the readings with a real Mac: a date, or never."""

_GIB = 1024**3
_SEND = "send the file that `otel-specdecode doctor --capture FILE` writes (docs/doctor.md)"


def host_checks(state: HostState, system: str) -> list[Check]:
    """Return a check for each reading; on a Mac also when readings of one were last verified.

    Args:
        state: What was read.
        system: As `sys.platform` names it.
    """
    checks = [_check(name, reading) for name, reading in state.readings().items()]
    if system == "darwin":
        verified = LAST_VERIFIED_ON_A_MAC != "never"
        facts = {"last_verified": LAST_VERIFIED_ON_A_MAC}
        detail = f"last verified on a Mac: {LAST_VERIFIED_ON_A_MAC}"
        title = "macOS readings"
        checks.append(
            Check(
                "host.macos_verified", title, "ok" if verified else "unknown", detail, "" if verified else _SEND, facts
            )
        )
    return checks


def memory_checks(memory: ProcessMemory, peaks: LifetimePeaks, system: str) -> list[Check]:
    """Return checks of what a process can tell of its own memory, read of this one."""
    known = {
        "resident": ("resident memory of this process", memory.resident),
        "peak_resident": ("its highest resident memory", _highest(memory.resident, peaks.resident)),
        "footprint": ("footprint of this process", memory.footprint),
        "peak_footprint": ("its highest footprint", _highest(memory.footprint, peaks.footprint)),
    }
    why = "the system does not tell" if system == "darwin" else "only macOS keeps it"
    checks = []
    for name, (title, value) in known.items():
        absent = why if "footprint" in name else "the system does not tell"
        status = "ok" if value is not None else "unknown"
        detail = absent if value is None else shown_bytes(value)
        checks.append(Check(f"process.{name}", title, status, detail, facts={"value": value}))  # type: ignore[arg-type]
    return checks


def _highest(now: int | None, ever: int | None) -> int | None:
    """Return the highest value: the system's mark may lag behind what is read now."""
    return None if ever is None else max(now or 0, ever)


def _check(name: str, reading: Reading[object]) -> Check:
    facts = {"value": reading.value, "source": reading.source, "why_unknown": reading.why_unknown}
    title = name.replace("_", " ")
    if not reading.known:
        return Check(f"host.{name}", title, "unknown", one_line(reading.why_unknown), facts=facts)
    return Check(
        f"host.{name}", title, "ok", one_line(f"{_shown(name, reading.value)}  ({reading.source})"), facts=facts
    )


def _shown(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return shown_bytes(value)
    return f"{value:.0%}" if name == "battery_charge" and isinstance(value, float) else str(value)


def shown_bytes(value: int) -> str:
    """Return bytes in GiB, or in MiB below one."""
    return f"{value / _GIB:.2f} GiB" if value >= _GIB else f"{value / 1024**2:.1f} MiB"
