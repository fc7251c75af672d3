"""Generations without an engine, on a clock that is moved by hand: for tests of whatever reads records."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from otel_specdecode.generation.observer import Observer
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import Outcome, watch

MILLISECOND = 1_000_000
"""One millisecond in ns."""

WORKED_EXAMPLE = (2, 3, 1, 4, 2, 0, 3, 3)
"""Accepted tokens of eight finished rounds at k = 4: 18 accepted, acceptance length 3.25, 26 tokens."""


class FakeClock:
    """A monotonic clock in ns that only moves when told to."""

    def __init__(self, now: int = 1_000_000_000) -> None:
        """Start at a reading."""
        self.now = now

    def __call__(self) -> int:
        """Return the reading."""
        return self.now

    def advance(self, nanoseconds: int) -> None:
        """Move forward."""
        self.now += nanoseconds


@dataclass(frozen=True, slots=True)
class FakeToken:
    """One emitted token.

    Attributes:
        own: Whether it is the target's own (correction or bonus, or any token of an autoregressive run).
        finish_reason: Set on the final response.
    """

    own: bool
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class FakeRound:
    """One decode pass of a speculative run.

    Attributes:
        proposed: Proposed tokens that reach the target.
        emitted: Tokens emitted from the pass.
        finished: Whether the last of them is the target's own.
    """

    proposed: int
    emitted: int
    finished: bool = True


def accepted_rounds(accepted: Sequence[int], k: int) -> tuple[FakeRound, ...]:
    """Return finished rounds of k proposed tokens with these numbers of accepted ones."""
    return tuple(FakeRound(k, count + 1) for count in accepted)


@dataclass(frozen=True, slots=True)
class Script:
    """What a fake engine does.

    Attributes:
        rounds: Decode passes of a speculative run; none for an autoregressive one.
        tokens: Tokens of an autoregressive run, or those that come from prefill in a speculative one.
        prompt_tokens: Tokens of the prompt.
        prefill: Duration of prefill in ns.
        target_step: Duration of a target pass in ns.
        draft_step: Duration of a draft pass in ns.
        finish_reason: On the last token; None: the stream just ends.
        failure: Raised after the last token.
    """

    rounds: tuple[FakeRound, ...] = ()
    tokens: int = 0
    prompt_tokens: int = 16
    prefill: int = 120 * MILLISECOND
    target_step: int = 26 * MILLISECOND
    draft_step: int = 3 * MILLISECOND
    finish_reason: str | None = "stop"
    failure: BaseException | None = field(default=None, compare=False)


def fake_request(script: Script, *, model: str = "target", draft_model: str = "draft") -> Request:
    """Return the request that a script answers."""
    if not script.rounds:
        return Request("text_completion", "mlx", model)
    longest = max(each.proposed for each in script.rounds)
    return Request(
        "text_completion",
        "mlx",
        model,
        mode="speculative",
        requested_mode="speculative",
        method="draft_model",
        draft_model=draft_model,
        draft_max_tokens=longest,
    )


def fake_stream(
    observer: Observer, script: Script, clock: FakeClock, request: Request | None = None
) -> Generator[FakeToken, object, None]:
    """Return the token stream of a script, watched as an engine's hooks would watch it.

    Args:
        observer: Who records.
        script: What the fake engine does.
        clock: Moves as the fake engine works; move it yourself to play a slow consumer.
        request: What was asked for, if it is not what the script says by itself.
    """
    ticket = observer.admit()
    if ticket is None:
        return _play(script, clock, None)
    generation = Generation(ticket, lambda _: request or fake_request(script), clock)
    return watch(_play(script, clock, generation), generation, _outcome)


def _outcome(_: Generation, token: FakeToken | None, exhausted: bool) -> Outcome:
    reason = token.finish_reason if token is not None else None
    return Outcome(
        reason or ("length" if exhausted else "closed"), exhausted or reason is not None, bool(token and token.own)
    )


def _play(script: Script, clock: FakeClock, generation: Generation | None) -> Generator[FakeToken, object, None]:
    clock.advance(script.prefill)
    if generation is not None:
        generation.input_tokens = script.prompt_tokens
        generation.ledger.prefill_passes += 1
        generation.ledger.prefill_end = clock()
    last = len(script.rounds) - 1
    for place in range(script.tokens):
        clock.advance(script.target_step)
        if generation is not None and not script.rounds and place:
            generation.ledger.plain_passes += 1
        ends = not script.rounds and place == script.tokens - 1
        yield FakeToken(True, script.finish_reason if ends else None)
    for number, each in enumerate(script.rounds):
        _draft(script, each, clock, generation)
        clock.advance(script.target_step)
        for place in range(each.emitted):
            ends = place == each.emitted - 1
            own = each.finished and ends
            yield FakeToken(own, script.finish_reason if ends and number == last else None)
    if script.failure is not None:
        raise script.failure


def _draft(script: Script, each: FakeRound, clock: FakeClock, generation: Generation | None) -> None:
    clock.advance(script.draft_step * each.proposed)
    if generation is not None:
        ledger = generation.ledger
        ledger.draft_calls += 1
        ledger.draft_passes = (ledger.draft_passes or 0) + each.proposed
        ledger.open_pass(generation.timeline.emitted(), each.proposed)
