"""The alerts. Each has a page of its name in docs/runbooks and a test of its name beside the rules."""

from __future__ import annotations

from collector.rulekit import bridged, guard
from collector.rulekit.flows import flow
from collector.rulekit.host import NODE, state
from collector.rulekit.model import Alert, labels, listed
from collector.rulekit.ratios import NO_PROBES, ROUNDS, enough_rounds, summed
from collector.rulekit.settings import LIMITS, MODEL, NODE_DRAFT, NODE_MODEL, SERVICE_DRAFT, grown, series

_DRAFT = (
    "{{ $labels.specdecode_method }} drafts of up to {{ $labels.specdecode_draft_length }} tokens for"
    " {{ $labels.gen_ai_request_model }} in {{ $labels.job }}"
)
_DRAFT_HERE = _DRAFT + " on {{ $labels.node }}, {{ $labels.specdecode_context_tier }} contexts"
_TWO_PLACES = '{{ printf "%.2f" $value }}'


def in_a_row(condition: str, windows: int) -> str:
    """A condition that holds in this window and those before it. ``{at}`` in it is the place of the offset."""
    offsets = ["", *(f" offset {5 * back}m" for back in range(1, windows))]
    return "\nand\n".join(condition.format(at=offset) for offset in offsets)


def acceptance() -> tuple[Alert, ...]:
    """Alerts on what the target makes of the draft."""
    return (
        *_accept_rate(),
        _below_break_even(),
        _nothing_accepted(),
        bridged.nothing_accepted(),
        _nothing_proposed(),
        _rollback_burst(),
    )


def _accept_rate() -> tuple[Alert, ...]:
    def below(severity: str) -> str:
        return (
            '  service:specdecode_accept_rate:ratio5m{{specdecode_method!="prompt_lookup"}}{at}\n'
            "    < on (specdecode_draft_length) group_left ()\n"
            f'  specdecode:accept_rate:bound{{{{severity="{severity}"}}}}'
        )

    windows = LIMITS["accept_rate"]["windows"]
    return (
        Alert(
            "SpecdecodeAcceptRateLow",
            "warning",
            "Too few proposed tokens are accepted.",
            f"Of the tokens that were compared, {_TWO_PLACES} were accepted over 5 minutes: {_DRAFT}.",
            below("warning").format(at=""),
            SERVICE_DRAFT,
        ),
        Alert(
            "SpecdecodeAcceptRateCollapsed",
            "critical",
            "Far too few proposed tokens are accepted, and it lasts.",
            f"Below the lower bound in {windows} windows of 5 minutes in a row, now {_TWO_PLACES}: {_DRAFT}.",
            in_a_row(below("critical"), windows),
            SERVICE_DRAFT,
        ),
    )


def _below_break_even() -> Alert:
    return Alert(
        "SpecdecodeBelowBreakEven",
        "warning",
        "Speculation costs more than it yields.",
        f"The acceptance length is {_TWO_PLACES} tokens a round away from what its rounds cost: {_DRAFT_HERE}.",
        "node:specdecode_break_even_margin:difference5m < 0",
        NODE_DRAFT,
    )


def _nothing_accepted() -> Alert:
    accepted = summed("draft_tokens", NODE_DRAFT, f'{NO_PROBES}, specdecode_draft_outcome="accepted"')
    compared = summed("draft_tokens", NODE_DRAFT, f'{NO_PROBES}, specdecode_draft_outcome=~"accepted|rejected"')
    return Alert(
        "SpecdecodeNothingAccepted",
        "critical",
        "Every proposed token is rejected.",
        f"{{{{ $value | humanize }}}} tokens were compared in 5 minutes and none was accepted: {_DRAFT_HERE}.",
        f"  {compared} > 0\nunless\n  {accepted} > 0\nand\n  {enough_rounds(NODE_DRAFT)}",
        NODE_DRAFT,
    )


def _nothing_proposed() -> Alert:
    by = labels("job", "node", MODEL, "specdecode_method")
    # Neither what the guard keeps from speculation nor its control requests propose anything, as they should.
    asked = 'specdecode_requested_mode="speculative", specdecode_cohort="normal"'

    def over(name: str, matchers: str, minutes: int) -> str:
        return f"sum by ({listed(by)}) (sum_over_time({flow(name)}{{{matchers}}}[{minutes}m:5m]))"

    lookups = LIMITS["samples"]["prompt_lookup_requests"]
    model, lookup = 'specdecode_method!="prompt_lookup"', 'specdecode_method="prompt_lookup"'
    passes = summed("decode_passes", by, f"{asked}, {model}")
    requests = over("requests", f"{asked}, {lookup}", 30)
    proposed = summed("draft_tokens", by, model)
    found = over("draft_tokens", lookup, 30)
    return Alert(
        "SpecdecodeNothingProposed",
        "warning",
        "Speculation is asked for and never happens.",
        "No token was proposed for requests that asked for speculation by {{ $labels.specdecode_method }}:"
        " {{ $labels.gen_ai_request_model }} in {{ $labels.job }} on {{ $labels.node }}.",
        f"  ({passes} > {ROUNDS} unless {proposed} > 0)\nor\n  ({requests} >= {lookups} unless {found} > 0)",
        by,
    )


def _rollback_burst() -> Alert:
    by = labels("job", "node", MODEL, "specdecode_method")
    return Alert(
        "SpecdecodeRollbackBurst",
        "warning",
        "Proposed tokens are suddenly rejected far more than before.",
        "{{ $value | humanize }} bursts of rejection in ten minutes: {{ $labels.gen_ai_request_model }} in"
        " {{ $labels.job }} on {{ $labels.node }}.",
        f"{grown(series('specdecode.rollback_bursts'), by, window='10m')} > 0",
        by,
    )


def speed() -> tuple[Alert, ...]:
    """Alerts on what speculation does to the times of requests."""
    return (*_speedup(), *_over_autoregressive(), _service_slowdown(), _queue_long(), _baseline_missing())


def _speedup() -> tuple[Alert, ...]:
    limits = LIMITS["speedup"]
    record = "  node:specdecode_decode_speedup:ratio5m{at}"
    return (
        Alert(
            "SpecdecodeSpeedupLow",
            "warning",
            "Speculation hardly speeds decoding up.",
            f"Decoding is {_TWO_PLACES} times as fast as autoregressive: {_DRAFT_HERE}.",
            in_a_row(f"{record} < {limits['low']}", limits["windows"]),
            NODE_DRAFT,
        ),
        Alert(
            "SpecdecodeSlowerThanAutoregressive",
            "critical",
            "Speculation slows decoding down.",
            f"Decoding is {_TWO_PLACES} times as fast as autoregressive: {_DRAFT_HERE}.",
            in_a_row(f"{record} < {limits['none']}", limits["windows"]),
            NODE_DRAFT,
        ),
        Alert(
            "SpecdecodeSpeedupDropped",
            "warning",
            "Speculation speeds decoding up far less than it usually does here.",
            f"Decoding is {_TWO_PLACES} times as fast as autoregressive, less than {limits['dropped']} of what was"
            f" usual in a day: {_DRAFT_HERE}.",
            in_a_row(
                f"{record} < {limits['dropped']} * node:specdecode_usual_decode_speedup:median1d{{at}}",
                limits["dropped_windows"],
            ),
            NODE_DRAFT,
        ),
    )


def _over_autoregressive() -> tuple[Alert, ...]:
    limits = LIMITS["over_autoregressive"]
    ratio = "node:specdecode_time_to_first_token_over_autoregressive"
    return (
        Alert(
            "SpecdecodeTimePerTokenHigh",
            "warning",
            "The slowest speculative requests are slower than autoregressive ones.",
            f"The decode time per token, 95th percentile of requests, is {_TWO_PLACES} times the autoregressive one:"
            f" {_DRAFT_HERE}.",
            f"node:specdecode_time_per_token_over_autoregressive:p95 > {limits['time_per_token_p95']}",
            NODE_DRAFT,
        ),
        Alert(
            "SpecdecodeTimeToFirstTokenHigh",
            "warning",
            "Speculative requests wait longer for their first token.",
            f"The median time to first token is {_TWO_PLACES} times the autoregressive one over 5 minutes:"
            f" {_DRAFT_HERE}.",
            # Two windows that share no request: a high median of one of them can be chance.
            in_a_row(f"  {ratio}:p50{{at}} > {ratio}:bound{{at}}", 2),
            NODE_DRAFT,
        ),
    )


def _service_slowdown() -> Alert:
    return Alert(
        "SpecdecodeServiceSlowdown",
        "warning",
        "Speculation costs the service more than it saves a request.",
        f"With queue and prefill, the output is {_TWO_PLACES} times as fast as autoregressive over 30 minutes:"
        f" {_DRAFT_HERE}.",
        f"node:specdecode_service_speedup:ratio30m < {LIMITS['speedup']['service']}",
        NODE_DRAFT,
    )


def _queue_long() -> Alert:
    by = labels("job", MODEL)
    return Alert(
        "SpecdecodeQueueLong",
        "warning",
        "Requests wait long before they are begun.",
        "The 95th percentile of the time in the queue is {{ $value | humanizeDuration }}:"
        " {{ $labels.gen_ai_request_model }} in {{ $labels.job }}.",
        f"service:specdecode_queue_seconds:p95 > {LIMITS['queue']['p95']}",
        by,
    )


def _baseline_missing() -> Alert:
    requests = LIMITS["samples"]["requests"]
    spoken = (
        f"sum by ({listed(NODE_MODEL)}) (\n"
        f'    sum_over_time({flow("requests")}{{specdecode_mode="speculative"}}[1h:5m])\n  )'
    )
    return Alert(
        "SpecdecodeBaselineMissing",
        "info",
        "There is nothing to hold speculation against.",
        "Too few autoregressive requests in a day, so speed-up and break-even are unknown:"
        " {{ $labels.gen_ai_request_model }} in {{ $labels.job }} on {{ $labels.node }},"
        " {{ $labels.specdecode_context_tier }} contexts.",
        f"  {spoken} >= {requests}\nunless\n  node:specdecode_baseline_requests:count",
        NODE_MODEL,
        hold="1h",
    )


def machines() -> tuple[Alert, ...]:
    """Alerts on the machine that the generations run on."""
    share, growth = LIMITS["memory"]["share_of_physical"], LIMITS["swap"]["growth"]
    states = LIMITS["states"]
    return (
        Alert(
            "SpecdecodeMemoryHigh",
            "warning",
            "Generating processes hold too much of a machine's memory.",
            "{{ $value | humanizePercentage }} of the memory of {{ $labels.node }} for five minutes.",
            # Of processes that are restarted, old and new overlap for two minutes: all five must be above.
            f"  min_over_time(node:specdecode_memory:ratio[5m]) > {share}\nand\n"
            f"  node:specdecode_memory:ratio offset 4m > {share}",
            NODE,
        ),
        Alert(
            "SpecdecodeMemoryPressureCritical",
            "critical",
            "A machine is out of memory.",
            "{{ $labels.node }} was under critical memory pressure for {{ $value | humanizeDuration }} of 5 minutes.",
            f"{state('memory_pressure_critical')} > {states['memory_pressure_critical']}",
            NODE,
        ),
        Alert(
            "SpecdecodeSwapGrowing",
            "warning",
            "A machine swaps while it generates.",
            "Swap in use on {{ $labels.node }} grew by {{ $value | humanize1024 }}B within ten minutes.",
            f"  node:specdecode_swap_used:bytes - min_over_time(node:specdecode_swap_used:bytes[10m]) > {growth}\nand\n"
            f"  {_serving(10)}",
            NODE,
        ),
        Alert(
            "SpecdecodeLowPower",
            "warning",
            "A machine generates on reduced power.",
            "{{ $labels.node }} was in low power mode or on battery for {{ $value | humanizeDuration }} of 5 minutes.",
            f"  ({state('low_power')} > {states['low_power']} or {state('on_battery')} > {states['low_power']})\nand\n"
            f"  {_serving(5)}",
            NODE,
        ),
        Alert(
            "SpecdecodeThrottled",
            "warning",
            "A machine is slowed down by heat.",
            "{{ $labels.node }} was in thermal state serious or critical for {{ $value | humanizeDuration }}"
            " of 5 minutes.",
            f"{state('throttled')} > {states['throttled']}",
            NODE,
        ),
    )


def _serving(minutes: int) -> str:
    """That generations began or run on a machine in the last minutes."""
    started = f"max_over_time(node:specdecode_requests_started:increase5m[{minutes}m])"
    active = f"max_over_time(node:specdecode_requests_active:sum[{minutes}m])"
    return f"(sum by (node) ({started}) > 0 or sum by (node) ({active}) > 0)"


def oversight() -> tuple[Alert, ...]:
    """Alerts on the guard and on telemetry itself."""
    by = labels("job", "node")
    http, started = "node:specdecode_http_completions:increase5m", "node:specdecode_requests_started:increase5m"
    limits = LIMITS["generations"]
    return (
        *guard.alerts(),
        Alert(
            "SpecdecodeGenerationsMissing",
            "warning",
            "Completions are served that nobody sees generated.",
            "{{ $value | humanize }} completions over HTTP in 5 minutes and hardly a generation in the telemetry:"
            " {{ $labels.job }} on {{ $labels.node }}.",
            f"  {http} >= {limits['completions']}\nunless\n  {started} >= {limits['seen']} * {http}",
            by,
            hold="3m",
        ),
        Alert(
            "SpecdecodeTelemetryGone",
            "critical",
            "A service went silent in the midst of requests.",
            "The last that was heard of {{ $labels.job }} on {{ $labels.node }}, within the last day, was"
            " {{ $value }} running requests.",
            # A process that stops in order ends its requests and reports 0 before it goes.
            "  last_over_time(node:specdecode_requests_active:sum[1d]) > 0\nunless\n"
            "  last_over_time(node:specdecode_requests_active:sum[5m])",
            by,
        ),
    )
