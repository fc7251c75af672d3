"""Which names the telemetry of every engine and mode had in common, told from what was captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from otel_specdecode.demo.results import Result
from otel_specdecode.telemetry.names import Attr

Seen = Mapping[str, AbstractSet[str]]
"""Names by the kind of request on which they were seen, such as `llama.cpp speculative`."""


def claims(results: Sequence[Result], metrics: Mapping[tuple[str, str], AbstractSet[str]]) -> list[str]:
    """Return what may be said of the names, one sentence each for span attributes and for metrics.

    Args:
        results: All that was run.
        metrics: Names of metrics by the provider and the mode on their points.
    """
    titles = {result.lineup.engine.name: result.lineup.engine.title for result in results}
    of_metrics = {f"{titles[provider]} {mode}": names for (provider, mode), names in metrics.items()}
    return [claim("span attributes", _attributes(results)), claim("metrics", of_metrics)]


def claim(what: str, seen: Seen) -> str:
    """Return how many names stand on requests of every kind, and which do not, with the kinds that have them."""
    kinds = list(seen)
    everywhere = frozenset.intersection(*map(frozenset, seen.values())) if seen else frozenset()
    told = f"The same {len(everywhere)} {what} were seen on {_listed(kinds)} requests"
    others: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(frozenset().union(*seen.values()) - everywhere):
        others.setdefault(tuple(kind for kind in kinds if name in seen[kind]), []).append(name)
    if not others:
        return f"{told}, and no other."
    rest = "; ".join(f"{_listed(names)} only on {_listed(where)}" for where, names in others.items())
    return f"{told}. Besides: {rest}."


def _attributes(results: Sequence[Result]) -> dict[str, set[str]]:
    seen: dict[str, set[str]] = {}
    for result in results:
        for run in result.runs:
            kind = f"{result.lineup.engine.title} {run.taken.attributes.get(Attr.SPECDECODE_MODE)}"
            seen.setdefault(kind, set()).update(run.taken.attributes)
    return seen


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
