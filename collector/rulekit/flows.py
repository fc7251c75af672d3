"""What was counted in the last five minutes: the numerators and denominators of every ratio, measurements left out."""

from __future__ import annotations

from collector.rulekit.model import Recording, labels
from collector.rulekit.settings import FLOW, WINDOW, grown, series

_MEASURED = '{specdecode_cohort!="bench"}'


def flow(name: str) -> str:
    """The recorded name of what is counted."""
    return f"node:specdecode_{name}:increase{WINDOW}"


def _flow(name: str, brief: str, metric: str, part: str = "", *extra: str) -> Recording:
    by = labels(FLOW, extra)
    return Recording(flow(name), f"{brief}, in five minutes.", grown(series(metric, part) + _MEASURED, by), by)


def recordings() -> tuple[Recording, ...]:
    """All flows."""
    return (
        _flow("draft_tokens", "Proposed tokens by outcome", "specdecode.draft.tokens", "", "specdecode_draft_outcome"),
        _flow(
            *("proposed_by_position", "Proposed tokens by place", "specdecode.draft.proposed_by_position", ""),
            "specdecode_draft_position",
        ),
        _flow(
            *("accepted_by_position", "Accepted tokens by place", "specdecode.draft.accepted_by_position", ""),
            "specdecode_draft_position",
        ),
        _flow("rounds", "Rounds by outcome", "specdecode.verify.passes", "", "specdecode_round_outcome"),
        _flow("rollbacks", "Rounds with a rejected token", "specdecode.rollbacks"),
        _flow("decode_passes", "Target passes of decoding", "specdecode.decode.passes"),
        _flow("decode_tokens", "Tokens that decode passes emitted", "specdecode.decode.tokens"),
        _flow("decode_seconds", "Seconds of decoding", "specdecode.decode.duration", "sum"),
        _flow("round_seconds", "Seconds of the decode passes that were timed", "specdecode.round.duration", "sum"),
        _flow("rounds_timed", "Decode passes that were timed", "specdecode.round.duration", "count"),
        _flow("requests", "Requests that ended", "gen_ai.server.request.duration", "count"),
        _flow("request_seconds", "Seconds of requests, queue left out", "gen_ai.server.request.duration", "sum"),
        _flow("queue_seconds", "Seconds of requests in a queue", "specdecode.queue.duration", "sum"),
        _flow(
            "time_per_token_seconds", "Times per token of requests, summed", "specdecode.decode.time_per_token", "sum"
        ),
        _flow("requests_decoded", "Requests with a time per token", "specdecode.decode.time_per_token", "count"),
        _flow(
            *("time_per_token_bucket", "Requests by time per token", "specdecode.decode.time_per_token", "bucket"), "le"
        ),
        _flow(
            *("time_to_first_token_bucket", "Requests by time to first token"),
            *("gen_ai.server.time_to_first_token", "bucket", "le"),
        ),
        _flow("round_bucket", "Decode passes by duration", "specdecode.round.duration", "bucket", "le"),
        _flow("request_bucket", "Requests by duration", "gen_ai.server.request.duration", "bucket", "le"),
        _flow("queue_bucket", "Requests by time in a queue", "specdecode.queue.duration", "bucket", "le"),
    )
