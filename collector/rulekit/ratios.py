"""Ratios of counts: how well a draft is accepted. Each has a least number of samples and is absent below it."""

from __future__ import annotations

from collections.abc import Iterator

from collector.rulekit.flows import flow
from collector.rulekit.model import Recording, labels, listed
from collector.rulekit.settings import LIMITS, NODE_DRAFT, SERVICE_DRAFT, SERVICE_MODE, WINDOW

ROUNDS = LIMITS["samples"]["rounds"]
REQUESTS = LIMITS["samples"]["requests"]
NO_PROBES = 'specdecode_cohort!="probe"'
"""Probes try what the guard has switched off, at a draft length of their own: they say nothing of what is served."""

REJECTED = f'{NO_PROBES}, specdecode_draft_outcome="rejected"'


def summed(name: str, by: frozenset[str], matchers: str = "") -> str:
    """A flow summed over all labels but these."""
    selector = flow(name) + (f"{{{matchers}}}" if matchers else "")
    return f"sum by ({listed(by)}) ({selector})"


def share(part: str, whole: str, samples: str) -> str:
    """A part over a whole where there are samples enough; nothing, never NaN, where the whole is 0."""
    return f"  {part}\n/\n  ({whole} > 0)\nand\n  {samples}"


def enough_rounds(by: frozenset[str]) -> str:
    """That there were rounds enough."""
    return f"{summed('rounds', by, NO_PROBES)} > {ROUNDS}"


def recordings() -> Iterator[Recording]:
    """Every ratio of counts."""
    for level, by in (("service", SERVICE_DRAFT), ("node", NODE_DRAFT)):
        yield from _acceptance(level, by)
    yield _by_position()
    yield _rollbacks_per_minute()
    yield _tokens_per_pass()
    yield _fallback_share()
    yield from _bounds()


def _acceptance(level: str, by: frozenset[str]) -> Iterator[Recording]:
    accepted = summed("draft_tokens", by, f'{NO_PROBES}, specdecode_draft_outcome="accepted"')
    # A sum of two: an engine of which rejected tokens are not known has no accept rate, instead of one of 1.
    compared = f"({accepted} + {summed('draft_tokens', by, REJECTED)})"
    rounds = summed("rounds", by, NO_PROBES)
    finished = summed("rounds", by, f'{NO_PROBES}, specdecode_round_outcome!="cut"')
    none = summed("rounds", by, f'{NO_PROBES}, specdecode_round_outcome="all_rejected"')
    yield Recording(
        f"{level}:specdecode_accept_rate:ratio{WINDOW}",
        "Accept rate: accepted over accepted and rejected tokens; unverified and bonus tokens are in neither.",
        share(accepted, compared, enough_rounds(by)),
        by,
    )
    yield Recording(
        f"{level}:specdecode_acceptance_length:ratio{WINDOW}",
        "Acceptance length: tokens emitted a round, the correction or bonus token included.",
        share(f"({accepted} + {finished})", rounds, enough_rounds(by)),
        by,
    )
    yield Recording(
        f"{level}:specdecode_all_rejected:ratio{WINDOW}",
        "Share of the finished rounds in which no proposed token was accepted.",
        share(none, finished, enough_rounds(by)),
        by,
    )


def _by_position() -> Recording:
    by = labels(SERVICE_DRAFT, "specdecode_draft_position")
    proposed = summed("proposed_by_position", by, NO_PROBES)
    return Recording(
        f"service:specdecode_accepted_by_position:ratio{WINDOW}",
        "Accepted over proposed tokens by place in the draft: how deep a draft pays.",
        share(summed("accepted_by_position", by, NO_PROBES), proposed, f"{proposed} > {ROUNDS}"),
        by,
    )


def _rollbacks_per_minute() -> Recording:
    by = SERVICE_DRAFT
    rollbacks = summed("rollbacks", by, NO_PROBES)
    return Recording(
        f"service:specdecode_rollbacks_per_decode_minute:ratio{WINDOW}",
        "Rollbacks per minute of decoding, not of the clock: more traffic does not raise it.",
        share(rollbacks, f"({summed('decode_seconds', by, NO_PROBES)} / 60)", enough_rounds(by)),
        by,
    )


def _tokens_per_pass() -> Recording:
    by = labels(SERVICE_DRAFT, "specdecode_mode")
    passes = summed("decode_passes", by, NO_PROBES)
    return Recording(
        f"service:specdecode_tokens_per_pass:ratio{WINDOW}",
        "Tokens emitted a target pass, passes that verify nothing included. About 1 in autoregressive mode.",
        share(summed("decode_tokens", by, NO_PROBES), passes, f"{passes} > {ROUNDS}"),
        by,
    )


def _fallback_share() -> Recording:
    by = SERVICE_MODE - {"specdecode_mode"}
    wanted = 'specdecode_requested_mode="speculative", specdecode_cohort!="control"'
    asked = summed("requests", by, wanted)
    fell = summed("requests", by, f'{wanted}, specdecode_mode="autoregressive"')
    return Recording(
        f"service:specdecode_fallbacks:ratio{WINDOW}",
        "Share of the requests that asked for speculation and took the autoregressive path; the guard's control"
        " requests are in neither.",
        share(f"({fell} or {asked} * 0)", asked, f"{asked} >= {REQUESTS}"),
        by,
    )


def _bounds() -> Iterator[Recording]:
    for severity in ("warning", "critical"):
        for length, bound in LIMITS["accept_rate"][severity].items():
            yield Recording(
                "specdecode:accept_rate:bound",
                f"Accept rate below which a draft of length {length} is too often rejected: {severity}.",
                f"vector({bound})",
                frozenset(),
                {"specdecode_draft_length": length, "severity": severity},
            )
