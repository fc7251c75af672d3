"""What of a dashboard may rightly be empty while requests of both modes run, and why: the one list of it."""

from __future__ import annotations

from collections.abc import Mapping

from collector.grafana.reading import Query

OVERVIEW, SPECULATION, INCIDENT, NODE = (
    f"specdecode-{name}" for name in ("overview", "speculation", "incident", "node")
)

NO_ALERT = "no alert fires"
GUARD = "only where a guard runs"
HTTP = "only where an HTTP server is instrumented"
MACOS = "macOS only"
MLX = "MLX only"
LLAMA_CPP = "llama.cpp only"
SCRAPED = "only where another engine is scraped"
NO_ERROR = "no request fails"
BATTERY = "only with a battery"
FINE = "the machine is in no such state"
NO_BURST = "no burst goes on"
SAME_MANIFEST = "what runs stays the same"
NO_PROCESS = "no process begins"
HISTORY = "only after some hours"
SWAP = "only where the machine tells of its swap"

MAY_BE_EMPTY: Mapping[tuple[str, str, str], str] = {
    (OVERVIEW, "Alerts that fire", ""): NO_ALERT,
    (INCIDENT, "Alerts that fire", ""): NO_ALERT,
    (OVERVIEW, "Decode speed-up", "B"): HISTORY,
    (SPECULATION, "Accept rate by model and k", "C"): SCRAPED,
    **{
        (SPECULATION, title, ""): SCRAPED
        for title in (
            "Accepted of proposed",
            "Tokens a round",
            "Accepted by place, of rounds",
            "Output tokens",
            "Rounds",
        )
    },
    (SPECULATION, "Draft share of decode time, llama.cpp", ""): LLAMA_CPP,
    (INCIDENT, "HTTP requests", ""): HTTP,
    (INCIDENT, "HTTP duration p95", ""): HTTP,
    **{
        place: FINE
        for board in (OVERVIEW, SPECULATION)
        for place in ((board, "Machines left out", "B"), (board, "Machines left out, over time", ""))
    },
    (INCIDENT, "Bursts that go on", "B"): NO_BURST,
    (INCIDENT, "Time in the queue p95", ""): HTTP,
    (INCIDENT, "Errors by type", ""): NO_ERROR,
    **{
        (INCIDENT, title, ""): GUARD
        for title in (
            "Guard scopes",
            "Guard transitions by trigger",
            "Guards that enforce",
            "Guard scopes without a baseline",
            "Measured over promised while the guard is open",
            "annotation: Guard open",
            "annotation: Guard changed",
        )
    },
    **{(INCIDENT, f"annotation: {name}", ""): FINE for name in ("Heat", "Low power", "On battery", "Memory pressure")},
    (INCIDENT, "annotation: Burst begins", ""): "no burst begins",
    (INCIDENT, "annotation: Burst goes on", ""): NO_BURST,
    (INCIDENT, "annotation: New manifest", ""): SAME_MANIFEST,
    (INCIDENT, "annotation: Process began", ""): NO_PROCESS,
    (NODE, "Footprint by process (macOS)", ""): MACOS,
    (NODE, "MLX allocator", ""): MLX,
    (NODE, "Battery charge", ""): BATTERY,
    (NODE, "Times do not compare", ""): FINE,
    (NODE, "Swap in use", ""): SWAP,
    (NODE, "Swap in use, over time", ""): SWAP,
    (NODE, "Pages swapped", ""): SWAP,
    (NODE, "Swap episodes", ""): SWAP,
    (INCIDENT, "Swap in use", ""): SWAP,
}
"""By dashboard, panel and query; an empty query means each of the panel's."""


def may_be_empty(query: Query) -> str | None:
    """Return why a query may find nothing even while requests of both modes run, None if it must find something."""
    place = (query.dashboard, query.panel)
    return MAY_BE_EMPTY.get((*place, query.ref_id)) or MAY_BE_EMPTY.get((*place, ""))
