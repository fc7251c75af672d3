"""Whether other requests came in than before: what metrics know of them, and for the rest what spans know."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.panels import Panel, Query, lines
from collector.grafana.promql import over, share, total
from collector.grafana.stores import span, spans
from collector.grafana.texts import NO_TRAFFIC, WINDOW, of_metric
from collector.rulekit.settings import series
from otel_specdecode.telemetry.names import Attr

FROM_TRACES = "From spans, so only of sampled requests, and only where the trace store answers TraceQL metrics."
FINISH_REASONS = ("stop", "length", "closed", "error")


def mix_panels() -> Iterator[Panel]:
    """The panels."""
    yield from _from_metrics()
    yield from _from_spans()


def _from_metrics() -> Iterator[Panel]:
    ended = series("gen_ai.server.request.duration", "count")
    for label, title, said in (
        ("specdecode_context_tier", "Requests by context tier", "By tier of input tokens."),
        ("specdecode_cohort", "Requests by cohort", "By why they ran as they did."),
        ("specdecode_method", "Requests by method and k", "By what proposes tokens, and how many at most."),
    ):
        by = (label, "specdecode_draft_length") if label == "specdecode_method" else (label,)
        name = " k=".join(f"{{{{{one}}}}}" for one in by)
        about = f"Requests that ended, a second. {said} {WINDOW} {NO_TRAFFIC}"
        yield lines(title, about, "reqps", Query(total(ended, by), name), width=8, stacked=True)
    usage, input_only = "gen_ai.client.token.usage", 'gen_ai_token_type="input"'
    mode = "specdecode_mode"
    released = over(
        total(series(usage, "sum"), mode, input_only),
        total(series(usage, "count"), mode, input_only),
    )
    renamed = "gen_ai.client.inference.operation.input_tokens"
    latest = over(total(series(renamed, "sum"), mode), total(series(renamed, "count"), mode))
    about = (
        f"{of_metric(renamed)} Here the mean by mode; under the released GenAI metric names and the latest, whichever a"
        f" service emits. {WINDOW} {NO_TRAFFIC}"
    )
    yield lines(
        "Mean prompt tokens",
        about,
        "suffix: tokens",
        Query(released, "{{specdecode_mode}}"),
        Query(latest, "{{specdecode_mode}}"),
    )
    cached = total(series("gen_ai.client.inference.usage.cache_read.input_tokens"), mode)
    prompt = total(series("gen_ai.client.inference.usage.input_tokens"), mode)
    about = of_metric(
        *("gen_ai.client.inference.usage.cache_read.input_tokens", "Here over the tokens of all prompts."),
        *("Only under the latest GenAI metric names, see also the panel of spans below.", WINDOW, NO_TRAFFIC),
    )
    found = Query(share(cached, prompt), "{{specdecode_mode}}")
    yield lines("Cached share of prompt tokens", about, "percentunit", found, top=1.0)


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
    temperature = Query(f"{spans()} | rate() by ({span(Attr.GEN_AI_REQUEST_TEMPERATURE)})", kind="tempo")
    about = f"Requests a second by sampling temperature; 0 is greedy. {FROM_TRACES}"
    yield lines("Requests by temperature", about, "reqps", temperature, stacked=True)
    reasons = span(Attr.GEN_AI_RESPONSE_FINISH_REASONS)
    asked = [Query(spans(f'{reasons} = "{one}"') + " | rate()", one, kind="tempo") for one in FINISH_REASONS]
    about = f"Requests a second by why the output ended: {', '.join(FINISH_REASONS)}. {FROM_TRACES}"
    yield lines("Requests by finish reason", about, "reqps", *asked, stacked=True)
