"""Node: the machine and its processes."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.board import Board, Section
from collector.grafana.colours import MEMORY, Steps, seconds_in_state
from collector.grafana.panels import Panel, Query, lines, tile, timeline
from collector.grafana.promql import WINDOW, selector, summed, total
from collector.grafana.texts import WINDOW as WINDOW_TEXT
from collector.grafana.texts import of_metric, of_rule
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
        "The machines that generations run on: memory, swap, pressure, power, battery and heat.",
        (
            Section("Now", tuple(_now())),
            Section("Memory", tuple(_memory())),
            Section("Swap", tuple(_swap())),
            Section("States", tuple(_states())),
            Section("Power and load", tuple(_load())),
        ),
        variables=(instance(),),
        span="now-3h",
    )


def memory_share() -> tuple[str, str]:
    """What is said of the share of the memory that generating processes hold, and the query of it."""
    record = "node:specdecode_memory:ratio"
    return of_rule(record, "Absent where no process reports."), selector(record)


def seconds(name: str) -> tuple[str, str, Steps]:
    """What is said of the seconds in a bad state, the query of them, and where they are judged."""
    record = f"node:specdecode_{name}:seconds5m"
    return of_rule(record, "Absent where it cannot be told."), selector(record), seconds_in_state(name)


def machine(metric: str, *matchers: str, by: str = "node") -> str:
    """A value of a machine: all of its processes report the same, so the largest counts."""
    return summed(selector(series(metric), *matchers), by.split(), operator="max")


def _now() -> Iterator[Panel]:
    about, expression = memory_share()
    yield tile("Memory of physical", about, "percentunit", Query(expression, NODE), steps=MEMORY, decimals=0)
    record = "node:specdecode_swap_used:bytes"
    about = of_rule(record, "Its growth is what matters, not its level.")
    yield tile("Swap in use", about, "bytes", Query(selector(record), NODE))
    about = of_metric("specdecode.host.memory_available", "Absent where it cannot be told.")
    yield tile("Memory available", about, "bytes", Query(machine("specdecode.host.memory_available"), NODE))
    about, expression, steps = seconds("memory_pressure_critical")
    yield tile("Critical memory pressure", about, "s", Query(expression, NODE), steps=steps, decimals=0)


def _memory() -> Iterator[Panel]:
    about, expression = memory_share()
    yield lines("Memory of physical, over time", about, "percentunit", Query(expression, NODE), steps=MEMORY)
    limits = [
        Query(machine("system.memory.limit"), "machine {{node}}"),
        Query(machine("specdecode.host.memory_limit"), "usable {{node}}", dashed=True),
        Query(machine("specdecode.host.memory_available"), "available {{node}}"),
    ]
    about = f"{of_metric('system.memory.limit')} Dashed: {of_metric('specdecode.host.memory_limit')}"
    yield lines(
        "Unified or physical memory", f"{about} {of_metric('specdecode.host.memory_available')}", "bytes", *limits
    )
    for metric, title in (
        ("process.memory.usage", "Resident memory by process"),
        ("specdecode.process.footprint", "Footprint by process (macOS)"),
        ("specdecode.process.peak_rss_lifetime", "Peak resident memory of a process's life"),
    ):
        about = of_metric(metric, "As last exported, largest of what one process reports.")
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


def _load() -> Iterator[Panel]:
    battery = Query(summed(selector(series("hw.battery.charge")), "node", operator="max"), NODE)
    yield lines("Battery charge", of_metric("hw.battery.charge"), "percentunit", battery, width=8, top=1.0)
    record = "node:specdecode_not_comparable:seconds5m"
    about = of_rule(record, "Empty while they do. Its height is the seconds in such a state.")
    yield lines("Times do not compare", about, "s", Query(selector(record), NODE, bars=True), width=8)
    started = series("specdecode.request.started")
    about = of_metric("specdecode.request.started", WINDOW_TEXT, "Empty without traffic.")
    found = Query(total(started, ("node", "specdecode_mode")), "{{specdecode_mode}} {{node}}")
    yield lines("Requests on the machine", about, "reqps", found, width=8)
