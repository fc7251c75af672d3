"""The machine's own state, by node: every process on it reports the same, so the largest of the reports counts."""

from __future__ import annotations

from collections.abc import Iterator

from collector.rulekit.model import Recording, labels
from collector.rulekit.settings import WINDOW, grown, series

NODE = labels("node")
NOT_COMPARABLE = "node:specdecode_not_comparable:seconds5m"

STATES = (
    ("throttled", "specdecode.host.thermal_state.time", 'specdecode_host_thermal_state=~"serious|critical"'),
    ("low_power", "specdecode.host.power_mode.time", 'specdecode_host_power_mode="low"'),
    ("on_battery", "specdecode.host.power_source.time", 'specdecode_host_power_source="battery"'),
    (
        *("memory_pressure_critical", "specdecode.host.memory_pressure.time"),
        'specdecode_host_memory_pressure="critical"',
    ),
)


def state(name: str) -> str:
    """The recorded name of the seconds in a state."""
    return f"node:specdecode_{name}:seconds{WINDOW}"


def recordings() -> Iterator[Recording]:
    """Every rule about machines and processes."""
    for name, metric, matcher in STATES:
        # Two states of one machine, such as serious and critical heat, add up within one process.
        by_process = grown(f"{series(metric)}{{{matcher}}}", labels("node", "instance"))
        yield Recording(
            state(name),
            f"Seconds of the last five minutes in which the machine was {name.replace('_', ' ')}.",
            f"max by (node) (\n{by_process}\n)",
            NODE,
        )
    yield Recording(
        NOT_COMPARABLE,
        "There where the machine's pace was changed by heat, power or memory: times do not compare.",
        "\nor\n".join(f"  ({state(name)} > 0)" for name, *_ in STATES),
        NODE,
    )
    yield from _memory()
    yield from _traffic()


def _memory() -> Iterator[Recording]:
    resident, footprint = series("process.memory.usage"), series("specdecode.process.footprint")
    live = [f"max by (node, instance) (last_over_time({name}[2m]))" for name in (footprint, resident)]
    yield Recording(
        "node:specdecode_memory:bytes",
        "Memory of all processes on a machine that report now: of each the larger of resident memory and footprint.",
        "sum by (node) (\n  max by (node, instance) (\n"
        f'      label_replace({live[0]}, "kind", "footprint", "", "")\n    or\n'
        f'      label_replace({live[1]}, "kind", "resident", "", "")\n  )\n)',
        NODE,
    )
    yield Recording(
        "node:specdecode_memory:ratio",
        "The same over the memory that there is.",
        f"node:specdecode_memory:bytes / (max by (node) ({series('system.memory.limit')}) > 0)",
        NODE,
    )
    yield Recording(
        "node:specdecode_swap_used:bytes",
        "Swap in use on a machine.",
        f'max by (node) ({series("system.paging.usage")}{{system_paging_state="used"}})',
        NODE,
    )


def _traffic() -> Iterator[Recording]:
    by = labels("job", "node")
    yield Recording(
        "node:specdecode_requests_started:increase5m",
        "Generations that began on a machine in five minutes.",
        grown(series("specdecode.request.started") + '{gen_ai_operation_name!="embeddings"}', by),
        by,
    )
    yield Recording(
        "node:specdecode_http_completions:increase5m",
        "Completions that the HTTP server of a machine answered in five minutes.",
        grown(
            series("http.server.request.duration", "count")
            + '{http_route=~".*completions", http_response_status_code=~"2.."}',
            by,
        ),
        by,
    )
    yield Recording(
        "node:specdecode_requests_active:sum",
        "Requests that run, of the processes that report now. What a machine that went silent said last.",
        f"sum by (job, node) (last_over_time({series('specdecode.request.active')}[2m]))",
        by,
    )
