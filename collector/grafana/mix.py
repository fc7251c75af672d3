"""Whether other requests came in than before: what metrics know of them, and for the rest what spans know."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.panels import Panel, Query, lines
from collector.grafana.promql import total
from collector.grafana.stores import span, spans
from collector.grafana.texts import NO_TRAFFIC, WINDOW
from collector.rulekit.settings import series
from otel_specdecode.telemetry.names import Attr

FROM_TRACES = "From spans, so only of sampled requests, and only where the trace store answers TraceQL metrics."
FINISH_REASONS = ("stop", "length", "closed", "error")


_BY_REQUEST = "A mean over requests, each of the same weight."


def mix_panels() -> Iterator[Panel]:
    """What has to be known first: whose requests came in, how they were sampled, and how long their prompts were."""
    yield from _by_tenant()
    yield from _by_temperature()
    yield _of_ended("specdecode_context_tier", "Requests by context tier", "By tier of input tokens.", 12)
    yield _prompt_tokens()


def further_panels() -> Iterator[Panel]:
    """What else is known of them."""
    yield _of_ended("specdecode_cohort", "Requests by cohort", "By why they ran as they did.", 12)
    said = "By what proposes tokens, and how many at most."
    yield _of_ended("specdecode_method", "Requests by method and k", said, 12)
    yield from _from_spans()


def _by_tenant() -> Iterator[Panel]:
    tenant = span(Attr.SPECDECODE_TENANT_ID)
    found = Query(f"{spans()} | rate() by ({tenant})", kind="tempo")
    named = "Tenants are named where baggage names them."
    about = f"Requests a second by tenant. {named} {FROM_TRACES}"
    yield lines("Requests by tenant", about, "reqps", found, width=8, stacked=True)
    found = Query(f"{spans()} | avg_over_time({span(Attr.SPECDECODE_ACCEPT_RATE)}) by ({tenant})", kind="tempo")
    about = (
        "Accepted over accepted and rejected tokens by tenant: low for one tenant alone, it is what that tenant sends."
        f" {_BY_REQUEST} {named} {FROM_TRACES}"
    )
    yield lines("Accept rate by tenant", about, "percentunit", found, width=8, top=1.0)
    speed = span(Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND)
    found = Query(f"{spans()} | avg_over_time({speed}) by ({tenant})", kind="tempo")
    about = (
        "Tokens after the first burst a second of decoding by tenant, one over the time per token."
        f" {_BY_REQUEST} {named} {FROM_TRACES}"
    )
    yield lines("Decode speed by tenant", about, "suffix: tokens/s", found, width=8)


def _by_temperature() -> Iterator[Panel]:
    temperature = span(Attr.GEN_AI_REQUEST_TEMPERATURE)
    found = Query(f"{spans()} | rate() by ({temperature})", kind="tempo")
    about = f"Requests a second by sampling temperature; 0 is greedy. {FROM_TRACES}"
    yield lines("Requests by temperature", about, "reqps", found, stacked=True)
    found = Query(f"{spans()} | avg_over_time({span(Attr.SPECDECODE_ACCEPT_RATE)}) by ({temperature})", kind="tempo")
    about = (
        "Accepted over accepted and rejected tokens by sampling temperature; the higher it is, the less of a draft"
        f" holds. {_BY_REQUEST} {FROM_TRACES}"
    )
    yield lines("Accept rate by temperature", about, "percentunit", found, top=1.0)


def _of_ended(label: str, title: str, said: str, width: int) -> Panel:
    by = (label, "specdecode_draft_length") if label == "specdecode_method" else (label,)
    found = Query(
        total(series("gen_ai.server.request.duration", "count"), by), " k=".join(f"{{{{{one}}}}}" for one in by)
    )
    about = f"Requests that ended, a second. {said} {WINDOW} {NO_TRAFFIC}"
    return lines(title, about, "reqps", found, width=width, stacked=True)


def _prompt_tokens() -> Panel:
    prompt, mode = span(Attr.GEN_AI_USAGE_INPUT_TOKENS), span(Attr.SPECDECODE_MODE)
    found = Query(f"{spans()} | avg_over_time({prompt}) by ({mode})", kind="tempo")
    about = f"Tokens of prompts, cached ones included, by mode. {_BY_REQUEST} {FROM_TRACES}"
    return lines("Mean prompt tokens", about, "suffix: tokens", found)


def _from_spans() -> Iterator[Panel]:
    prompt, cached = span(Attr.GEN_AI_USAGE_INPUT_TOKENS), span(Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS)
    about = (
        f"Tokens of prompts, cached ones included: percentiles 50 and 95; and the median of those cached. {FROM_TRACES}"
    )
    yield lines(
        "Prompt tokens",
        about,
        "suffix: tokens",
        Query(f"{spans()} | quantile_over_time({prompt}, 0.5, 0.95)", kind="tempo"),
        Query(f"{spans()} | quantile_over_time({cached}, 0.5)", "cached p50", kind="tempo"),
    )
    about = f"Requests a second, and those of them that took prompt tokens from a cache. {FROM_TRACES}"
    yield lines(
        "Requests that read from a cache",
        about,
        "reqps",
        Query(f"{spans()} | rate()", "all", kind="tempo"),
        Query(f"{spans(f'{cached} > 0')} | rate()", "from a cache", kind="tempo"),
    )
    reasons = span(Attr.GEN_AI_RESPONSE_FINISH_REASONS)
    asked = [Query(spans(f'{reasons} = "{one}"') + " | rate()", one, kind="tempo") for one in FINISH_REASONS]
    about = f"Requests a second by why the output ended: {', '.join(FINISH_REASONS)}. {FROM_TRACES}"
    yield lines("Requests by finish reason", about, "reqps", *asked, stacked=True)
