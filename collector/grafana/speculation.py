"""Speculation: how well drafts are accepted, what they cost, and whether that pays."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana import machines
from collector.grafana.board import Board, Section
from collector.grafana.bridge import bridged_accept_rate, bridged_panels
from collector.grafana.colours import MARGIN, OVER_P95
from collector.grafana.panels import Panel, Query, heat, lines, note, tile
from collector.grafana.promql import AUTOREGRESSIVE, MODE, SPECULATIVE, over, selector, share, summed, total
from collector.grafana.texts import (
    FEW_REQUESTS,
    FEW_ROUNDS,
    LEFT_OUT,
    NO_BASELINE,
    NO_TRAFFIC,
    WINDOW,
    of_metric,
    of_rule,
)
from collector.rulekit.settings import series

PROPOSED = series("specdecode.draft.tokens")
ROUNDS = series("specdecode.verify.passes")
PASSES = series("specdecode.decode.passes")
TOKENS_PER_SECOND = "suffix: tokens/s"
TOKENS = "suffix: tokens"
DRAFT = "{{gen_ai_request_model}} {{specdecode_method}} k={{specdecode_draft_length}} {{job}}"
HERE = f"{DRAFT} {{{{specdecode_context_tier}}}} {{{{node}}}}"

_OUTCOME = "specdecode_draft_outcome"
_ACCEPTED = f'{_OUTCOME}="accepted"'
_COMPARED = f'{_OUTCOME}=~"accepted|rejected"'
_POSITION = "specdecode_draft_position"
_ACCEPT_RATE = "service:specdecode_accept_rate:ratio5m"
_SLOWER_DECODING = (
    "Slower decoding lowers it as well, so a fall is no good sign by itself: see *Rejected tokens per 1,000 output"
    " tokens* on the Incident dashboard."
)
_ACCEPT_RATE_TEXT = "Accepted over accepted and rejected tokens; unverified and bonus tokens are in neither."


def board() -> Board:
    """The dashboard."""
    return Board(
        "speculation",
        "Speculative decoding / Speculation",
        "How well drafts are accepted, what they cost, and whether that pays.",
        (
            Section("Now", tuple(_now())),
            Section("Acceptance", tuple(_acceptance())),
            Section("Does it pay", tuple(_pays())),
            Section("Token flow", tuple(_flow())),
            Section("Cost of a round and of its draft", tuple(_cost())),
            Section("Hazards and fallbacks", tuple(_hazards())),
            Section("Engines that are scraped (llama-server, vLLM)", tuple(bridged_panels()), closed=True),
        ),
    )


def accept_rate(by: str = "") -> str:
    """Accept rate from sums of counters."""
    return over(total(PROPOSED, by, _ACCEPTED), total(PROPOSED, by, _COMPARED))


def acceptance_length(by: str = "") -> str:
    """Tokens emitted a round, from sums of counters."""
    finished = total(ROUNDS, by, 'specdecode_round_outcome!="cut"')
    return over(f"({total(PROPOSED, by, _ACCEPTED)} + {finished})", total(ROUNDS, by))


def _now() -> Iterator[Panel]:
    rate = Query(accept_rate(), "accept rate")
    about = f"{_ACCEPT_RATE_TEXT} {WINDOW} Absent where none were compared."
    yield tile("Accept rate", about, "percentunit", rate, width=8)
    about = "Tokens emitted a round, the correction or bonus token included: accepted tokens and finished rounds over"
    length = Query(acceptance_length(), "acceptance length")
    yield tile("Acceptance length", f"{about} rounds. {WINDOW} {NO_TRAFFIC}", TOKENS, length, width=8, decimals=2)
    minute = Query(_rollbacks_per_minute(), "rollbacks")
    about = "Rounds with a rejected token per minute of decoding, not of the clock: more traffic does not raise it."
    about = f"{about} {_SLOWER_DECODING} Most rounds of a healthy draft of 4 roll back. {WINDOW} {NO_TRAFFIC}"
    yield tile("Rollbacks per decode minute", about, "none", minute, width=8, decimals=0)
    margin = "node:specdecode_break_even_margin:difference5m"
    least = Query(summed(selector(margin), operator="min"), "least")
    about = of_rule(margin, "The least of all machines, models and tiers. Below 0 a round costs more than it yields.")
    about = f"{about} {FEW_ROUNDS} {NO_BASELINE} {LEFT_OUT}"
    yield tile("Break-even margin, least", about, TOKENS, least, steps=MARGIN, width=12, decimals=2)
    yield machines.left_out_now(12)


def _rollbacks_per_minute() -> str:
    seconds = total(series("specdecode.decode.duration", "sum"), (), SPECULATIVE)
    return over(total(series("specdecode.rollbacks"), (), SPECULATIVE), f"({seconds} / 60)")


def _acceptance() -> Iterator[Panel]:
    rates = selector(_ACCEPT_RATE)
    bound = summed(selector("specdecode:accept_rate:bound"), ("severity", "specdecode_draft_length"), operator="max")
    about = of_rule(_ACCEPT_RATE, FEW_ROUNDS, "Dashed: the bounds of the alerts for these draft lengths.")
    yield lines(
        "Accept rate by model and k",
        f"{about} Of engines that are scraped it is accepted of proposed, another ratio.",
        "percentunit",
        Query(rates, DRAFT),
        Query(
            f"{bound} and on (specdecode_draft_length) {rates}",
            "{{severity}} bound, k={{specdecode_draft_length}}",
            dashed=True,
        ),
        Query(bridged_accept_rate(), "{{gen_ai_request_model}} {{gen_ai_provider_name}}, of proposed"),
        top=1.0,
    )
    proposed = total(series("specdecode.draft.proposed_by_position"), _POSITION)
    places = over(total(series("specdecode.draft.accepted_by_position"), _POSITION), proposed)
    about = of_metric("specdecode.draft.accepted_by_position", WINDOW, "The first place is 0.", NO_TRAFFIC)
    yield lines(
        "Accepted by place in the draft",
        about,
        "percentunit",
        Query(places, "place {{specdecode_draft_position}}"),
        top=1.0,
    )
    tier = "specdecode_context_tier"
    about = f"{_ACCEPT_RATE_TEXT} By tier of input tokens. {WINDOW} {NO_TRAFFIC}"
    yield lines(
        "Accept rate by context tier", about, "percentunit", Query(accept_rate(tier), f"{{{{{tier}}}}}"), top=1.0
    )
    record = "service:specdecode_all_rejected:ratio5m"
    found = Query(selector(record), DRAFT)
    yield lines("All-rejected share of rounds", of_rule(record, FEW_ROUNDS), "percentunit", found, top=1.0)


def _pays() -> Iterator[Panel]:
    length, cost = "node:specdecode_acceptance_length:ratio5m", "node:specdecode_break_even_length:ratio5m"
    margin = "node:specdecode_break_even_margin:difference5m"
    about = f"{of_rule(length, FEW_ROUNDS)} Dashed: {of_rule(cost)} {NO_BASELINE} {LEFT_OUT}"
    yield lines(
        "Acceptance length and break-even",
        about,
        TOKENS,
        Query(selector(length), HERE),
        Query(selector(cost), f"break-even {HERE}", dashed=True),
    )
    about = of_rule(margin, FEW_ROUNDS, NO_BASELINE, LEFT_OUT)
    yield lines("Break-even margin", about, TOKENS, Query(selector(margin), HERE), steps=MARGIN)
    record = "service:specdecode_tokens_per_pass:ratio5m"
    about = of_rule(record, "Absent below 200 passes.")
    found = Query(selector(record), f"{{{{{MODE}}}}} {{{{gen_ai_request_model}}}} k={{{{specdecode_draft_length}}}}")
    yield lines("Tokens per target pass", about, TOKENS, found)
    record = "node:specdecode_time_per_token_over_autoregressive:p95"
    about = of_rule(record, "Bonus tokens included.", FEW_REQUESTS, NO_BASELINE, LEFT_OUT)
    yield lines(
        "Time per token p95 over autoregressive", about, "suffix: x", Query(selector(record), HERE), steps=OVER_P95
    )
    yield machines.left_out()


def _flow() -> Iterator[Panel]:
    by = Query(total(PROPOSED, _OUTCOME), f"{{{{{_OUTCOME}}}}}")
    about = of_metric("specdecode.draft.tokens", WINDOW, NO_TRAFFIC)
    yield lines("Proposed tokens by outcome", about, TOKENS_PER_SECOND, by, width=8, stacked=True)
    by = Query(total(ROUNDS, "specdecode_round_outcome"), "{{specdecode_round_outcome}}")
    about = of_metric("specdecode.verify.passes", "all_accepted has the bonus token.", WINDOW, NO_TRAFFIC)
    yield lines("Rounds by outcome", about, "suffix: rounds/s", by, width=8, stacked=True)
    record = "service:specdecode_rollbacks_per_decode_minute:ratio5m"
    found = Query(selector(record), DRAFT)
    about = of_rule(record, FEW_ROUNDS, _SLOWER_DECODING)
    yield lines("Rollbacks per minute of decoding", about, "none", found, width=8)


def _cost() -> Iterator[Panel]:
    found = []
    for percent in (50, 95):
        record = f"service:specdecode_round_seconds:p{percent}"
        # By mode, not by quantile, is what this panel compares: the mode leads the name and gives the colour.
        name = f"{{{{{MODE}}}}} p{percent} {{{{gen_ai_request_model}}}}"
        found.append(Query(selector(record), name, dashed=percent == 50))
    about = of_rule("service:specdecode_round_seconds:p95", "Dashed: percentile 50.", FEW_ROUNDS)
    yield lines("Round duration by mode", about, "s", *found, width=24)
    for side, matcher in (("autoregressive", AUTOREGRESSIVE), ("speculative", SPECULATIVE)):
        buckets = total(series("specdecode.round.duration", "bucket"), "le", matcher)
        about = of_metric("specdecode.round.duration", "Timed passes a second.", WINDOW, NO_TRAFFIC)
        yield heat(f"Round durations, {side}", about, "s", buckets)
    yield from _draft_cost()


def _draft_cost() -> Iterator[Panel]:
    llama, drafted = 'gen_ai_provider_name="llama_cpp"', 'specdecode_method!="none"'
    seconds = total(series("specdecode.draft.duration", "sum"), "gen_ai_request_model", llama, drafted)
    decoding = total(series("specdecode.decode.duration", "sum"), "gen_ai_request_model", llama, drafted)
    about = of_metric("specdecode.draft.duration", "Here its sum over that of decode durations of the same requests.")
    about = f"{about} {WINDOW} {NO_TRAFFIC}"
    found = Query(over(seconds, decoding), "{{gen_ai_request_model}}")
    yield lines("Draft share of decode time, llama.cpp", about, "percentunit", found, width=8, top=1.0)
    by, name = ("gen_ai_request_model", "specdecode_method"), "{{gen_ai_request_model}} {{specdecode_method}}"
    # Of a custom draft nobody knows the passes: its rounds must not divide those of another.
    seen = total(series("specdecode.draft.passes"), by, SPECULATIVE, 'specdecode_method!="custom"')
    rounds = total(ROUNDS, by)
    calls = over(total(series("specdecode.draft.calls"), by, SPECULATIVE), rounds)
    about = of_metric("specdecode.draft.passes", "Here over the rounds of the same method, of custom drafts absent.")
    about = f"{about} Dashed: calls, also those that propose nothing."
    yield lines(
        "Draft passes and calls a round",
        f"{about} {WINDOW} {NO_TRAFFIC}",
        "none",
        Query(over(seen, rounds), f"passes {name}"),
        Query(calls, f"calls {name}", dashed=True),
        width=8,
    )
    yield note(
        "Draft time on MLX",
        "Why there is no graph of it.",
        "**Not observable.** MLX runs a draft's passes later than it is asked to, so their time cannot be told from the"
        " target's. What a round costs with its draft is in *Round duration by mode*, and whether that pays in"
        " *Break-even margin*. On llama.cpp single requests have `specdecode.draft.duration` on their span.",
        width=8,
        height=8,
    )


def _hazards() -> Iterator[Panel]:
    found = Query(total(series("specdecode.hazards"), "specdecode_hazard_id"), "{{specdecode_hazard_id}}")
    about = of_metric("specdecode.hazards", WINDOW, "0 for a hazard that no request met.")
    yield lines("Hazards", about, "reqps", found, width=8)
    found = Query(total(series("specdecode.fallbacks"), "specdecode_fallback_reason"), "{{specdecode_fallback_reason}}")
    about = of_metric("specdecode.fallbacks", WINDOW, "0 for a reason that no request had.")
    yield lines("Fallbacks by reason", about, "reqps", found, width=8)
    by = "gen_ai_request_model"
    verifying = share(total(ROUNDS, by, SPECULATIVE), total(PASSES, by, SPECULATIVE))
    about = (
        "Rounds, the decode passes that verify a draft, over all decode passes of speculative requests: how often"
        f" speculation ran at all. {WINDOW} {NO_TRAFFIC}"
    )
    found = Query(verifying, "{{gen_ai_request_model}}")
    yield lines("Decode passes that verify a draft", about, "percentunit", found, width=8, top=1.0)
