"""What tests of the engines' own servers read of the telemetry that arrived, and of what a server wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from otel_specdecode.testing.checker import check
from tests.otlp_receiver import Received, ReceivedSpan

_COMPLAINTS = ("Failed to detach", "is not affected")


def finish_reason(span: ReceivedSpan) -> str:
    """Why a generation ended."""
    (reason,) = span.attributes["gen_ai.response.finish_reasons"]
    return str(reason)


def requests_and_generations(received: Received) -> list[ReceivedSpan]:
    """The spans less those that the FastAPI instrumentation has of single messages."""
    return [span for span in received.spans() if span.kind == "SERVER" or is_generation(span)]


def is_generation(span: ReceivedSpan) -> bool:
    """Tell whether a span is a generation of this library."""
    return span.scope == "otel_specdecode" and span.kind == "INTERNAL"


def by_trace(spans: Sequence[ReceivedSpan]) -> dict[str, list[ReceivedSpan]]:
    """The spans of each trace, the SERVER span first."""
    found = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.kind, reverse=True):
        found[span.trace_id].append(span)
    return found


def total(received: Received, metric: str) -> float:
    """A metric's newest number over all its series; of a histogram how many values it has."""
    return sum(value for _, value in received.latest(metric))


def active(received: Received) -> float:
    """Generations that run."""
    return total(received, "specdecode.request.active")


def breaks_the_contract(received: Received) -> list[str]:
    """What of all that arrived is not as the registry has it; of the metrics, which add up, the newest."""
    newest = Received({path: sent[-1:] if "metrics" in path else sent for path, sent in received.requests.items()})
    return [str(finding) for finding in check(otlp=newest.as_json()) if finding.severity == "violation"]


def complains(log: str) -> bool:
    """Tell whether this library, or the SDK, found something wrong."""
    return any(words in log for words in _COMPLAINTS)
