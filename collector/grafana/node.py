"""Node: the machine and its processes."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana import machines
from collector.grafana.board import Board, Section
from collector.grafana.colours import MEMORY, Steps, seconds_in_state
from collector.grafana.panels import Panel, Query, lines, tile, timeline
from collector.grafana.promql import WINDOW, selector, summed, total
from collector.grafana.texts import NO_FOOTPRINT, of_metric, of_rule
from collector.grafana.texts import WINDOW as WINDOW_TEXT
from collector.grafana.variables import instance
from collector.rulekit.settings import series

NODE = "{{node}}"
PROCESS = "{{job}} {{instance}}"
STATES = (
    ("memory_pressure", "Memory pressure"),
    ("thermal_state", "Thermal state"),
    ("power_mode", "Power mode"),
    ("power_source", "Power source"),
)

_ONE = 'instance=~"$instance"'
_PROCESSES = ("job", "instance")


def board() -> Board:
    """The dashboard."""
    return Board(
        "node",
        "Speculative decoding / Node",
        "The machines that generations run on: pace, memory, swap, pressure, power, battery and heat.",
        (
            Section("Now", tuple(_now())),
            Section("Pace and load", tuple(_pace())),
            Section("Memory", tuple(_memory())),
            Section("Swap", tuple(_swap())),
            Section("States", tuple(_states())),
            Section("Battery, and what is left out", tuple(_left_out())),
        ),
        variables=(instance(),),
        span="now-3h",
    )


def memory_share() -> tuple[str, str]:
    """What is said of the share of the memory that generating processes hold, and the query of it."""
    record = "node:specdecode_memory:ratio"
    about = (
        "Memory of all processes that generate over that of the machine, `system.memory.limit`; of each process the"
        f" larger of resident memory and footprint. Absent where no process reports. {NO_FOOTPRINT}"
    )
    return about, selector(record)


def seconds(name: str) -> tuple[str, str, Steps]:
    """What is said of the seconds in a bad state, the query of them, and where they are judged."""
    record = f"node:specdecode_{name}:seconds5m"
    return of_rule(record, "Absent where it cannot be told."), selector(record), seconds_in_state(name)


def machine(metric: str, *matchers: str, by: str = "node") -> str:
    """A value of a machine: all of its processes report the same, so the largest counts."""
    return summed(selector(series(metric), *matchers), by.split(), operator="max")


def _now() -> Iterator[Panel]:
    about, expression = memory_share()
    yield tile("Our share of memory", about, "percentunit", Query(expression, NODE), steps=MEMORY, decimals=0)
    record = "node:specdecode_swap_used:bytes"
    about = of_rule(record, "Its growth is what matters, not its level.")
    yield tile("Swap in use", about, "bytes", Query(selector(record), NODE))
    about = of_metric("specdecode.host.memory_available", "Absent where it cannot be told.")
    yield tile("Memory available", about, "bytes", Query(machine("specdecode.host.memory_available"), NODE))
    about, expression, steps = seconds("memory_pressure_critical")
    yield tile("Critical memory pressure", about, "s", Query(expression, NODE), steps=steps, decimals=0)


def _pace() -> Iterator[Panel]:
    yield machines.time_per_token(8)
    yield machines.round_duration(8)
    yield machines.requests(8)


def _memory() -> Iterator[Panel]:
    about, expression = memory_share()
    yield lines("Our share of memory, over time", about, "percentunit", Query(expression, NODE), steps=MEMORY)
    yield _whose_memory()
    for metric, title in (
        ("process.memory.usage", "Resident memory by process"),
        ("specdecode.process.footprint", "Footprint by process (macOS)"),
        ("specdecode.process.peak_rss_lifetime", "Peak resident memory of a process's life"),
    ):
        about = of_metric(metric, "As last exported, largest of what one process reports.", NO_FOOTPRINT)
        found = Query(summed(selector(series(metric), _ONE), _PROCESSES, operator="max"), PROCESS)
        yield lines(title, about, "bytes", found, width=8)
    state = "specdecode_engine_memory_state"
    usage, peak = series("specdecode.engine.memory.usage"), series("specdecode.engine.memory.peak")
    about = f"{of_metric('specdecode.engine.memory.usage')} Dashed: {of_metric('specdecode.engine.memory.peak')}"
    yield lines(
        "MLX allocator",
        f"{about} Empty without MLX.",
        "bytes",
        Query(summed(selector(usage, _ONE), (*_PROCESSES, state)), f"{{{{{state}}}}} {PROCESS}"),
        Query(summed(selector(peak, _ONE), _PROCESSES, operator="max"), f"peak {PROCESS}", dashed=True),
        width=24,
    )


def _whose_memory() -> Panel:
    """Limit and what is available are of one kind: of the cgroup where that has less than the machine."""
    limit, available = machine("specdecode.host.memory_limit"), machine("specdecode.host.memory_available")
    ours = selector("node:specdecode_memory:bytes")
    about = (
        f"Dashed: {of_metric('specdecode.host.memory_limit')}"
        f" Available: {of_metric('specdecode.host.memory_available')}"
        " Ours: memory of all processes that generate, of each the larger of resident memory and footprint. The rest is"
        f" in use and not ours: the limit less what is available and ours. {NO_FOOTPRINT} Then the rest has it."
    )
    return lines(
        "Whose memory is in use",
        about,
        "bytes",
        Query(ours, f"ours {NODE}"),
        Query(f"clamp_min({limit} - {available} - on (node) {ours}, 0)", f"rest {NODE}"),
        Query(available, f"available {NODE}"),
        Query(limit, f"limit {NODE}", dashed=True),
    )


def _swap() -> Iterator[Panel]:
    record = "node:specdecode_swap_used:bytes"
    yield lines("Swap in use, over time", of_rule(record), "bytes", Query(selector(record), NODE), width=8)
    operations = series("system.paging.operations")
    direction = "system_paging_direction"
    found = Query(summed(total(operations, ("node", "instance", direction)), ("node", direction), operator="max"))
    about = of_metric("system.paging.operations", WINDOW_TEXT, "Largest of what one process of a machine reports.")
    shown = Query(found.expr, f"{{{{{direction}}}}} {NODE}")
    yield lines("Pages swapped", about, "suffix: pages/s", shown, width=8)
    episodes = selector(series("specdecode.host.swap_episodes"))
    found = Query(summed(f"increase({episodes}[{WINDOW}])", "node", operator="max"), NODE, bars=True)
    about = of_metric("specdecode.host.swap_episodes", WINDOW_TEXT)
    yield lines("Swap episodes", about, "none", found, width=8)


def _states() -> Iterator[Panel]:
    for name, title in STATES:
        label = f"specdecode_host_{name}"
        status = machine(f"specdecode.host.{name}.status", by=f"node {label}")
        about = of_metric(f"specdecode.host.{name}.status", "A bar is a state that was read; no bar, nothing reported.")
        yield timeline(title, about, Query(f"{status} == 1", f"{NODE}: {{{{{label}}}}}"), width=12, height=5)
        spent = summed(f"rate({selector(series(f'specdecode.host.{name}.time'))}[{WINDOW}])", ("node", label), "max")
        about = of_metric(f"specdecode.host.{name}.time", "Here the share of time in each.", WINDOW_TEXT)
        found = Query(spent, f"{{{{{label}}}}} {NODE}")
        yield lines(f"{title}, share of time", about, "percentunit", found, height=5, stacked=True)


def _left_out() -> Iterator[Panel]:
    battery = Query(summed(selector(series("hw.battery.charge")), "node", operator="max"), NODE)
    yield lines("Battery charge", of_metric("hw.battery.charge"), "percentunit", battery, top=1.0)
    record = "node:specdecode_not_comparable:seconds5m"
    about = of_rule(record, "Empty while they do. Its height is the seconds in such a state.")
    yield lines("Times do not compare", about, "s", Query(selector(record), NODE, bars=True))
