"""What may rightly be empty while requests of both modes run, and why: the one list of it.

By dashboard, panel and query; an empty query means each of the panel's.
"""

from __future__ import annotations

from collections.abc import Mapping

OVERVIEW, SPECULATION, INCIDENT, NODE = (
    f"specdecode-{name}" for name in ("overview", "speculation", "incident", "node")
)

_NO_ALERT = "no alert fires"
_GUARD = "specdecode.guard.scopes comes with the guard"
_HTTP = "only where an HTTP server is instrumented"
_MACOS = "macOS only"
_MLX = "MLX only"
_LLAMA_CPP = "llama.cpp only"
_SCRAPED = "only where another engine is scraped"
_NO_ERROR = "no request fails"
_BATTERY = "only with a battery"
_FINE = "the machine is in no such state"
_NO_BURST = "no burst goes on"
_LATEST = "only under OTEL_SPECDECODE_GENAI_METRICS=latest"
_SWAP = "only where the machine tells of its swap"

MAY_BE_EMPTY: Mapping[tuple[str, str, str], str] = {
    (OVERVIEW, "Alerts that fire", ""): _NO_ALERT,
    (INCIDENT, "Alerts that fire", ""): _NO_ALERT,
    (SPECULATION, "Accept rate by model and k", "C"): _SCRAPED,
    **{
        (SPECULATION, title, ""): _SCRAPED
        for title in (
            "Accepted of proposed",
            "Tokens a round",
            "Accepted by place, of rounds",
            "Output tokens",
            "Rounds",
        )
    },
    (SPECULATION, "Draft share of decode time, llama.cpp", ""): _LLAMA_CPP,
    (INCIDENT, "HTTP requests", ""): _HTTP,
    (INCIDENT, "HTTP duration p95", ""): _HTTP,
    **{
        place: _FINE
        for board in (OVERVIEW, SPECULATION)
        for place in ((board, "Machines left out", "B"), (board, "Machines left out, over time", ""))
    },
    (INCIDENT, "Bursts that go on", "B"): _NO_BURST,
    (INCIDENT, "Time in the queue p95", ""): _HTTP,
    (INCIDENT, "Errors by type", ""): _NO_ERROR,
    (INCIDENT, "Guard scopes", ""): _GUARD,
    (INCIDENT, "Mean prompt tokens", "B"): _LATEST,
    (INCIDENT, "Cached share of prompt tokens", ""): _LATEST,
    (INCIDENT, "annotation: Guard open", ""): _GUARD,
    **{(INCIDENT, f"annotation: {name}", ""): _FINE for name in ("Heat", "Low power", "On battery", "Memory pressure")},
    (INCIDENT, "annotation: Burst begins", ""): "no burst begins",
    (INCIDENT, "annotation: Burst goes on", ""): _NO_BURST,
    (INCIDENT, "annotation: New manifest", ""): "what runs stays the same",
    (INCIDENT, "annotation: Process began", ""): "no process begins",
    (NODE, "Footprint by process (macOS)", ""): _MACOS,
    (NODE, "MLX allocator", ""): _MLX,
    (NODE, "Battery charge", ""): _BATTERY,
    (NODE, "Times do not compare", ""): _FINE,
    (NODE, "Swap in use", ""): _SWAP,
    (NODE, "Swap in use, over time", ""): _SWAP,
    (NODE, "Pages swapped", ""): _SWAP,
    (NODE, "Swap episodes", ""): _SWAP,
    (INCIDENT, "Swap in use", ""): _SWAP,
}
