"""Which rules stand in which file."""

from __future__ import annotations

from collector.rulekit import alerts, bridged, flows, guard, host, latency, ratios
from collector.rulekit.gates import check
from collector.rulekit.model import Alert, Group
from collector.rulekit.render import render
from collector.rulekit.settings import series_by_name

FOLDER = "collector/prometheus/rules"


def groups() -> dict[str, Group]:
    """The groups of rules by the name of their file.

    All recordings are one group: a rule reads what those above it recorded at the same time stamp. Were they several,
    each would read the others' of up to a minute before, and a machine that is hot would be compared for that minute.
    """
    rooms = (flows, ratios, bridged, host, latency, guard)
    recordings = tuple(recording for room in rooms for recording in room.recordings())
    return {
        "recording": Group("specdecode-recording", recordings),
        "alerts-acceptance": Group("specdecode-acceptance", alerts.acceptance()),
        "alerts-speed": Group("specdecode-speed", alerts.speed()),
        "alerts-machines": Group("specdecode-machines", alerts.machines()),
        "alerts-oversight": Group("specdecode-oversight", alerts.oversight()),
    }


def all_alerts() -> tuple[Alert, ...]:
    """Every alert."""
    return tuple(rule for group in groups().values() for rule in group.rules if isinstance(rule, Alert))


def outputs() -> dict[str, str]:
    """Text of each rule file by its path from the repository's root.

    Raises:
        RuleError: A rule names a metric, label or value that nobody defines.
    """
    found = groups()
    check(found.values(), series_by_name())
    return {f"{FOLDER}/{name}.yaml": render([group]) for name, group in found.items()}
