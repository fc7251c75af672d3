"""The guard: what it keeps from speculation, what it cannot judge, and what is promised meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from collector.rulekit.flows import flow
from collector.rulekit.model import Alert, Recording, labels, listed
from collector.rulekit.ratios import REQUESTS, summed
from collector.rulekit.settings import LIMITS, series

SERVICE_NODE = labels("job", "node")
DEGRADED = "node:specdecode_degraded_slo:ratio5m"
"""Above 1 a promise is not kept."""

_OBJECTIVE = "specdecode_guard_objective"
_ENFORCING = f"on (job, node, instance) {series('specdecode.guard.enforcing')} == 1"
_FALLBACK = 'specdecode_cohort="fallback"'
_LATENCIES = (
    ("time_to_first_token_p95", "time_to_first_token", "time to first token"),
    ("time_per_token_p95", "time_per_token", "decode time per token"),
)


def kept_from_speculation() -> str:
    """How many scopes of guards that enforce are open: a probe does not close one, it stays open for all others."""
    scopes = f'{series("specdecode.guard.scopes")}{{specdecode_guard_state=~"open|probing"}}'
    return f"sum by ({listed(SERVICE_NODE)}) ({scopes} and {_ENFORCING}) > 0"


def recordings() -> Iterator[Recording]:
    """What is measured while the guard is open, over what its policy promises for that time."""
    for objective, name, what in _LATENCIES:
        buckets = summed(f"{name}_bucket", labels(SERVICE_NODE, "le"), _FALLBACK)
        count = summed(f"{name}_bucket", SERVICE_NODE, f'{_FALLBACK}, le="+Inf"')
        measured = f"(\n  histogram_quantile(0.95, {buckets})\nand\n  {count} >= {REQUESTS}\n)"
        promised = _promised(objective, "min")
        yield Recording(
            DEGRADED,
            f"Of requests that the guard keeps from speculation: percentile 95 of the {what}, over what is promised.",
            f"{measured}\n/ on ({listed(SERVICE_NODE)})\n{promised}\nand\n  {kept_from_speculation()}",
            SERVICE_NODE,
            {_OBJECTIVE: objective},
        )
    # Requests that run at each export of five minutes leave no idle time worth mentioning.
    busy = f"sum by ({listed(SERVICE_NODE)}) (min_over_time(node:specdecode_requests_active:sum[5m])) > 0"
    yield Recording(
        DEGRADED,
        "While the guard is open and requests run all the time: output tokens a second that are promised, over the"
        " output.",
        f"{_promised('tokens_per_second', 'max')}\n/ on ({listed(SERVICE_NODE)})\n"
        f"(({summed('decode_tokens', SERVICE_NODE)} / 300) > 0)\nand\n  {busy}\nand\n  {kept_from_speculation()}",
        SERVICE_NODE,
        {_OBJECTIVE: "tokens_per_second"},
    )


def _promised(objective: str, strictest: str) -> str:
    promises = f'{series("specdecode.guard.degraded_slo")}{{{_OBJECTIVE}="{objective}"}}'
    return f"{strictest} by ({listed(SERVICE_NODE)}) ({promises})"


def alerts() -> tuple[Alert, ...]:
    """Alerts on the guard itself."""
    return _open(), _missed(), _without_baseline(), _disabled()


def _open() -> Alert:
    return Alert(
        "SpecdecodeGuardOpen",
        "warning",
        "The guard keeps requests from speculation.",
        "{{ $value }} scopes of {{ $labels.job }} on {{ $labels.node }} are switched to autoregressive decoding.",
        kept_from_speculation(),
        SERVICE_NODE,
    )


def _missed() -> Alert:
    return Alert(
        "SpecdecodeDegradedSLOMissed",
        "critical",
        "What is promised for the time without speculation is not kept.",
        '{{ $labels.specdecode_guard_objective }} is {{ printf "%.2f" $value }} times as bad as the guard\'s policy'
        " promises, while it keeps requests of {{ $labels.job }} on {{ $labels.node }} from speculation.",
        f"{DEGRADED} > 1",
        labels(SERVICE_NODE, _OBJECTIVE),
        hold="5m",
    )


def _without_baseline() -> Alert:
    speculative = f'sum_over_time({flow("requests")}{{specdecode_mode="speculative"}}[1h:5m])'
    lacking = series("specdecode.guard.scopes_without_baseline")
    hours = LIMITS["guard"]["without_baseline_hours"]
    return Alert(
        "SpecdecodeGuardBaselineMissing",
        "info",
        "The guard has nothing to hold speculation against.",
        f"For {hours} hours {{{{ $value }}}} scopes of {{{{ $labels.job }}}} on {{{{ $labels.node }}}} could not be"
        " compared with requests without a draft.",
        f"  sum by ({listed(SERVICE_NODE)}) ({lacking} and {_ENFORCING}) > 0\n"
        f"and\n  sum by ({listed(SERVICE_NODE)}) ({speculative}) >= {REQUESTS}",
        SERVICE_NODE,
        hold=f"{hours}h",
    )


def _disabled() -> Alert:
    return Alert(
        "SpecdecodeGuardDisabled",
        "warning",
        "A guard is asked for and does not run.",
        "{{ $value }} processes of {{ $labels.job }} on {{ $labels.node }} cannot use their policy and run without"
        " guard.",
        f"sum by ({listed(SERVICE_NODE)}) ({series('specdecode.guard.disabled')}) > 0",
        SERVICE_NODE,
    )
