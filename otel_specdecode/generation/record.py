"""The finished record of one generation: what telemetry, guard and reports read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Tally

NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Ending:
    """How a stream ended.

    Attributes:
        kind: complete: the final response was handed out; closed: the consumer stopped early; error: it raised.
        at: Clock reading (ns) of the end: the last token's for a complete stream.
        finish_reason: The engine's word, `closed`, `error`, or None if nobody said.
        error_type: Qualified name of the exception class of an error.
        last_pass_finished: Whether the last emitted token is the target's own (correction or bonus).
    """

    kind: Literal["complete", "closed", "error"]
    at: int
    finish_reason: str | None
    error_type: str | None = None
    last_pass_finished: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What the engine told of the prompt and of known engine conditions.

    Attributes:
        input_tokens: Tokens of the prompt, cached ones included; None if the engine raised before it was read.
        cached_tokens: Prompt tokens whose KV entries were reused.
        hazards: Ids of the hazards met, each once.
        embedding_dimensions: Length of each vector, of a request for embeddings.
    """

    input_tokens: int | None = None
    cached_tokens: int = 0
    hazards: tuple[str, ...] = ()
    embedding_dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds; None where they do not exist (see Tally for each one's meaning)."""

    duration: float
    time_to_first_token: float | None = None
    prefill: float | None = None
    decode: float | None = None
    consumer: float | None = None
    draft: float | None = None
    time_to_first_chunk: float | None = None
    time_per_token: float | None = None
    wait_p50: float | None = None
    wait_p95: float | None = None
    wait_p99: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second of decode after the first burst."""
        return 1 / self.time_per_token if self.time_per_token else None


@dataclass(frozen=True, slots=True)
class Record:
    """One finished generation.

    Building one whose counts do not add up raises ContradictionError.
    """

    request: Request
    counts: Counts
    timing: Timing
    facts: Facts
    ending: Ending

    def __post_init__(self) -> None:
        """Hold the identities.

        Raises:
            ContradictionError: If counts do not add up.
        """
        self.counts.verify()

    @property
    def rollbacks_per_minute(self) -> float:
        """Rollbacks per minute of decode time; 0 without decode time."""
        return self.counts.rollbacks * 60 / self.timing.decode if self.timing.decode else 0.0

    @property
    def acceptance_length(self) -> float | None:
        """Tokens emitted a round; 1 for an autoregressive run."""
        return 1.0 if self.request.mode == "autoregressive" else self.counts.acceptance_length


def build_record(request: Request, tally: Tally, facts: Facts, ending: Ending, began: int) -> Record:
    """Build the record of a generation whose stretches have all been folded.

    Args:
        request: What was asked for.
        tally: Totals, with the last segment ended.
        facts: What the engine told of the prompt.
        ending: How the stream ended.
        began: Clock reading (ns) of the first resume.

    Raises:
        ContradictionError: If counts do not add up.
    """
    return Record(request, tally.totals, _timing(tally, began, max(ending.at - began, 0)), facts, ending)


def _timing(tally: Tally, began: int, duration: int) -> Timing:
    draft = None if tally.draft is None else tally.draft / NANOSECONDS
    if tally.time_to_first_token is None:
        return Timing(duration / NANOSECONDS, draft=draft)
    after = tally.tokens_after_first_burst
    p50, p95, p99 = tally.waits.quantiles((0.5, 0.95, 0.99)) if len(tally.waits) else (None, None, None)
    return Timing(
        duration=duration / NANOSECONDS,
        time_to_first_token=tally.time_to_first_token / NANOSECONDS,
        prefill=None if tally.prefill is None else tally.prefill / NANOSECONDS,
        decode=tally.decode / NANOSECONDS,
        consumer=tally.consumer / NANOSECONDS,
        draft=draft,
        time_to_first_chunk=None if tally.first_chunk is None else (tally.first_chunk - began) / NANOSECONDS,
        time_per_token=tally.after_first_burst / NANOSECONDS / after if after else None,
        wait_p50=None if p50 is None else p50 / NANOSECONDS,
        wait_p95=None if p95 is None else p95 / NANOSECONDS,
        wait_p99=None if p99 is None else p99 / NANOSECONDS,
    )
