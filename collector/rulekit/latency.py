"""Times: quantiles, the autoregressive baseline, and what speculation gains over it.

Times are held against each other on one machine only, within one context tier, and not while heat, a low power mode,
battery or a lack of memory changes the machine's pace.
"""

from __future__ import annotations

from collections.abc import Iterator

from collector.rulekit.flows import flow
from collector.rulekit.host import NOT_COMPARABLE
from collector.rulekit.model import Recording, labels, listed
from collector.rulekit.ratios import NO_PROBES, REQUESTS, ROUNDS, enough_rounds, share, summed
from collector.rulekit.settings import LIMITS, NODE_DRAFT, NODE_MODEL, SERVICE_MODE, WINDOW

_SPECULATIVE = f'specdecode_mode="speculative", {NO_PROBES}'
_AUTOREGRESSIVE = 'specdecode_mode="autoregressive"'
_BASELINE = 'specdecode_mode="autoregressive", specdecode_cohort=~"normal|control"'
_CONTROL = 'specdecode_cohort="control"'
_BASELINE_REQUESTS = LIMITS["samples"]["baseline_requests"]
_OF_AN_HOUR, _OF_A_DAY = "{record}", "sum_over_time({record}[1d:1h])"
_AGAINST = f"on ({listed(NODE_MODEL)}) group_left ()"
_BASELINE_OVER = f"on ({listed(NODE_MODEL)}) group_right ()"

_QUANTILES = (
    ("time_per_token", "decode time per token, over requests", REQUESTS),
    ("time_to_first_token", "time to first token, over requests, queue left out", REQUESTS),
    ("round", "duration of a decode pass", ROUNDS),
    ("request", "duration of requests, queue left out", REQUESTS),
)
_BASELINE_FLOWS = (
    ("time_per_token_seconds", ""),
    ("requests_decoded", ""),
    ("time_per_token_bucket", "le"),
    ("time_to_first_token_bucket", "le"),
    ("round_seconds", ""),
    ("rounds_timed", ""),
)


def recordings() -> Iterator[Recording]:
    """Every rule about times."""
    yield from _quantiles()
    yield from _baseline()
    yield from _over_baseline()
    yield from _break_even()
    yield _service_speedup()


def quantile(value: float, name: str, by: frozenset[str], samples: int, matchers: str = "") -> str:
    """A quantile of a flow of buckets where there are samples enough: without any it would be NaN."""
    buckets = summed(f"{name}_bucket", labels(by, "le"), matchers)
    count = summed(f"{name}_bucket", by, f'{matchers}{", " if matchers else ""}le="+Inf"')
    return f"  histogram_quantile({value}, {buckets})\nand\n  {count} >= {samples}"


def _quantiles() -> Iterator[Recording]:
    for name, brief, samples in _QUANTILES:
        for percent in (50, 95, 99):
            yield Recording(
                f"service:specdecode_{name}_seconds:p{percent}",
                f"Percentile {percent} of the {brief}, by mode.",
                quantile(percent / 100, name, SERVICE_MODE, samples),
                SERVICE_MODE,
            )
    by = SERVICE_MODE - {"specdecode_mode"}
    yield Recording(
        "service:specdecode_queue_seconds:p95",
        "Percentile 95 of the time that requests waited before their stream was resumed.",
        quantile(0.95, "queue", by, REQUESTS),
        by,
    )


def _baseline() -> Iterator[Recording]:
    for name, extra in _BASELINE_FLOWS:
        by = labels(NODE_MODEL, "specdecode_cohort", extra) if extra else labels(NODE_MODEL, "specdecode_cohort")
        now = f"{flow(name)}{{{_BASELINE}}} unless on (node) {NOT_COMPARABLE}"
        yield Recording(
            f"node:specdecode_baseline_{name}:increase1h",
            f"Of the autoregressive requests of an hour under comparable conditions: {name}.",
            f"sum by ({listed(by)}) (sum_over_time(({now})[1h:5m]))",
            by,
        )
    yield Recording(
        "node:specdecode_baseline_requests:count",
        "Autoregressive requests that times are held against: of the guard's control cohort those of an hour if they"
        " are enough, else of a day; of all that were not kept from speculation where control is too thin.",
        _of_baseline("{requests_decoded}"),
        NODE_MODEL,
    )
    yield Recording(
        "node:specdecode_baseline_time_per_token_seconds:mean",
        "Mean autoregressive decode time per token.",
        _of_baseline("{time_per_token_seconds} / ({requests_decoded} > 0)"),
        NODE_MODEL,
    )
    yield Recording(
        "node:specdecode_baseline_round_seconds:mean",
        "Mean autoregressive duration of a decode pass.",
        _of_baseline("{round_seconds} / ({rounds_timed} > 0)"),
        NODE_MODEL,
    )
    for value, name, percent in ((0.95, "time_per_token", 95), (0.5, "time_to_first_token", 50)):
        by = labels(NODE_MODEL, "le")
        yield Recording(
            f"node:specdecode_baseline_{name}_seconds:p{percent}",
            f"Percentile {percent} of the autoregressive {name.replace('_', ' ')}.",
            _of_baseline(f"histogram_quantile({value}, sum by ({listed(by)}) ({{{name}_bucket}}))"),
            NODE_MODEL,
        )


def _of_baseline(formula: str) -> str:
    """A formula over the baseline's flows, of the first that holds requests enough.

    Control requests are a share of those that asked for speculation, so of the same traffic; others that run without a
    draft may be of another kind.
    """
    return "\nor\n".join(
        _of_flows(formula, matchers, over) for matchers in (_CONTROL, "") for over in (_OF_AN_HOUR, _OF_A_DAY)
    )


def _of_flows(formula: str, matchers: str, over: str) -> str:
    selector = f"{{{matchers}}}" if matchers else ""
    flows = {
        name: f"sum by ({listed(labels(NODE_MODEL, extra) if extra else NODE_MODEL)})"
        f" ({over.format(record=f'node:specdecode_baseline_{name}:increase1h{selector}')})"
        for name, extra in _BASELINE_FLOWS
    }
    return f"  ({formula.format(**flows)} and {flows['requests_decoded']} >= {_BASELINE_REQUESTS})"


def _over_baseline() -> Iterator[Recording]:
    by = NODE_DRAFT
    enough = f"{summed('requests_decoded', by, _SPECULATIVE)} >= {REQUESTS}"
    mean = (
        f"({summed('time_per_token_seconds', by, _SPECULATIVE)} / ({summed('requests_decoded', by, _SPECULATIVE)} > 0))"
    )
    base = "node:specdecode_baseline_time_per_token_seconds:mean"
    yield Recording(
        f"node:specdecode_decode_speedup:ratio{WINDOW}",
        "Decode speed-up: mean autoregressive time per token over the speculative one, same machine, model and tier.",
        f"  ({base} > 0)\n/ {_BASELINE_OVER}\n  ({mean} > 0)\nand\n  {enough}\nunless on (node)\n  {NOT_COMPARABLE}",
        by,
    )
    yield _usual_speedup()
    for value, name, percent in ((0.95, "time_per_token", 95), (0.5, "time_to_first_token", 50)):
        base = f"node:specdecode_baseline_{name}_seconds:p{percent}"
        yield Recording(
            f"node:specdecode_{name}_over_autoregressive:p{percent}",
            f"Percentile {percent} of the {name.replace('_', ' ')}: speculative over autoregressive.",
            f"  ({quantile(value, name, by, REQUESTS, _SPECULATIVE)})\n"
            f"/ {_AGAINST}\n  ({base} > 0)\nunless on (node)\n  {NOT_COMPARABLE}",
            by,
        )
    spread = LIMITS["over_autoregressive"]["time_to_first_token_spread"]
    limit = LIMITS["over_autoregressive"]["time_to_first_token_p50"]
    here = summed("time_to_first_token_bucket", by, f'{_SPECULATIVE}, le="+Inf"')
    yield Recording(
        "node:specdecode_time_to_first_token_over_autoregressive:bound",
        "What the ratio of the medians must be above: the limit, and what so few requests leave open.",
        f"{limit} * (1 + {spread} * (1 / ({here} > 0)"
        f" + {_AGAINST} (1 / node:specdecode_baseline_requests:count)) ^ 0.5)",
        by,
    )


def _usual_speedup() -> Recording:
    # A whole day, so that what changed in a quiet night is held against the day before it. The last half hour is left
    # out: what has only begun is not usual yet.
    day = f"node:specdecode_decode_speedup:ratio{WINDOW}[1d:{WINDOW}] offset 30m"
    return Recording(
        "node:specdecode_usual_decode_speedup:median1d",
        "Decode speed-up that is usual here: the median of a day up to half an hour ago, where it was long known.",
        f"  quantile_over_time(0.5, {day})\nand\n  count_over_time({day}) >= {LIMITS['speedup']['usual_windows']}",
        NODE_DRAFT,
    )


def _break_even() -> Iterator[Recording]:
    by = NODE_DRAFT
    seconds = summed("round_seconds", by, _SPECULATIVE)
    timed = summed("rounds_timed", by, _SPECULATIVE)
    cost = f"node:specdecode_break_even_length:ratio{WINDOW}"
    yield Recording(
        cost,
        "Break-even: how many autoregressive passes one speculative pass with its drafting takes as long as.",
        f"  ({seconds} / ({timed} > 0))\n/ {_AGAINST}\n  (node:specdecode_baseline_round_seconds:mean > 0)\n"
        f"and\n  {enough_rounds(by)}\nunless on (node)\n  {NOT_COMPARABLE}",
        by,
    )
    yield Recording(
        f"node:specdecode_break_even_margin:difference{WINDOW}",
        "Break-even margin: acceptance length less what a round must yield to pay, in tokens a round.",
        f"node:specdecode_acceptance_length:ratio{WINDOW} - {cost}",
        by,
    )


def _service_speedup() -> Recording:
    by = NODE_DRAFT

    def per_token(group: frozenset[str], matchers: str) -> str:
        def over(name: str) -> str:
            return f"sum by ({listed(group)}) (sum_over_time({flow(name)}{{{matchers}}}[30m:5m]))"

        busy = over("request_seconds")
        queued = f"({over('queue_seconds')} or {busy} * 0)"
        return share(f"({busy} + {queued})", over("decode_tokens"), f"{over('requests')} >= {REQUESTS}")

    return Recording(
        "node:specdecode_service_speedup:ratio30m",
        "Service speed-up: seconds a token, queue and prefill included, of autoregressive over speculative requests"
        " that the machine served in the same half hour, so under the same load.",
        f"(\n{per_token(NODE_MODEL, _AUTOREGRESSIVE)}\n)\n/ {_BASELINE_OVER}\n"
        f"((\n{per_token(by, _SPECULATIVE)}\n) > 0)",
        by,
    )
