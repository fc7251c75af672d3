"""What is kept of a run: plain data, one line of JSON each. Holds no prompt and no answer, but their digests."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

FORMAT = 1
"""Version of the files of a run."""

Kind = Literal["code", "summary", "translation", "json_tool", "other"]
Phase = Literal["warm_up", "measured"]
RunKind = Literal["sweep", "soak"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run requests. Two arms of a sweep differ in one of these.

    Attributes:
        draft_length: k; 0 is autoregressive decoding, the baseline.
        draft: Label of the draft among those that were given; empty for an autoregressive arm.
        temperature: Of the sampling; 0 is greedy.
        top_k: Of the sampling; 0 takes all tokens.
        concurrency: Requests at once.
    """

    draft_length: int
    draft: str = ""
    temperature: float = 0.0
    top_k: int = 0
    concurrency: int = 1

    @property
    def name(self) -> str:
        """Short, unique among the arms of a run, such as `ar`, `k=4` or `k=4 draft-q4 t=0.7 c=2`."""
        parts = [f"k={self.draft_length}" if self.draft_length else "ar", self.draft]
        parts += [f"t={self.temperature:.12g}" if self.temperature else "", f"top-k={self.top_k}" if self.top_k else ""]
        parts += [f"c={self.concurrency}" if self.concurrency > 1 else ""]
        return " ".join(filter(None, parts))

    @property
    def speculative(self) -> bool:
        """Whether it has a draft that may propose."""
        return self.draft_length > 0

    @property
    def baseline(self) -> Arm:
        """The autoregressive arm that it is held against: all else is equal."""
        return Arm(0, "", self.temperature, self.top_k, self.concurrency)


@dataclass(frozen=True, slots=True)
class Passes:
    """Every decode pass of a request whose duration is known, in order.

    Attributes:
        tokens: Tokens that each emitted: 1 without a draft, the accepted ones and the target's own in a round.
        microseconds: Duration of each with its drafting, without the consumer's time.
    """

    tokens: tuple[int, ...] = ()
    microseconds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """One request of a run. Durations are in seconds, memory in bytes; None where there is none or it is not known.

    What the words mean is what they mean on spans (docs/semantics.md); `trace_id` finds the span.

    Attributes:
        id: Unique in its run: the session id of its span.
        arm: Name of its arm.
        prompt: Id of its prompt.
        kind: Of its prompt.
        repeat: How often this arm had run this prompt before.
        phase: `warm_up` requests count for nothing.
        started_at: When it was asked for, in seconds since the epoch.
        weight: Of its prompt.
        trace_id: 32 hex digits.
        manifest_id: Of what ran.
        error: Qualified name of the exception's class, of a request that failed; all that follows may be missing then.
        finish_reason: The engine's word.
        input_tokens: Tokens of the prompt.
        output_tokens: Emitted tokens, the one that ends the text included.
        cached_tokens: Prompt tokens whose KV entries were reused.
        duration: First resume to end.
        time_to_first_token: First resume to first token.
        prefill: First resume to the end of prefill.
        decode: End of prefill to last token, without the consumer's time.
        time_per_token: Decode time per token after the first burst.
        queued: Before the first resume, where requests wait for each other.
        accepted, rejected, unverified: Proposed tokens.
        rounds: Decode passes that verified a proposal.
        finished_rounds: Of them those whose target token was emitted.
        rollbacks: Rounds with a rejected token.
        decode_passes: All decode passes.
        draft_passes: Draft model passes that yielded a proposed token.
        passes: Each of the decode passes.
        client_first: First token by the clock of the loop that asked for it, which is not instrumented; it holds
            `queued`.
        client_decode: First token to last by that clock.
        text_digest: Of the whole answer; equal answers have equal digests.
        opening_digest: Of its first characters, for distributions at a temperature above 0.
        check: Whether the answer passed its prompt's check; None without one.
        peak_rss: Highest resident memory of the process while it ran.
        peak_footprint: Likewise of the physical footprint; macOS only.
        engine_peak: Highest memory of the engine's own allocator while it ran.
        hazards: Ids of the hazards met.
    """

    id: str
    arm: str
    prompt: str
    kind: Kind
    repeat: int
    phase: Phase
    started_at: float
    weight: float = 1.0
    trace_id: str | None = None
    manifest_id: str | None = None
    error: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int = 0
    cached_tokens: int = 0
    duration: float = 0.0
    time_to_first_token: float | None = None
    prefill: float | None = None
    decode: float | None = None
    time_per_token: float | None = None
    queued: float | None = None
    accepted: int = 0
    rejected: int = 0
    unverified: int = 0
    rounds: int = 0
    finished_rounds: int = 0
    rollbacks: int = 0
    decode_passes: int = 0
    draft_passes: int | None = None
    passes: Passes = field(default_factory=Passes)
    client_first: float | None = None
    client_decode: float | None = None
    text_digest: str | None = None
    opening_digest: str | None = None
    check: bool | None = None
    peak_rss: int | None = None
    peak_footprint: int | None = None
    engine_peak: int | None = None
    hazards: tuple[str, ...] = ()

    @property
    def compared(self) -> int:
        """Proposed tokens that were compared with an emitted one."""
        return self.accepted + self.rejected

    @property
    def ended_at(self) -> float:
        """Seconds since the epoch; what it waited for others before its first resume is no part of its duration."""
        return self.started_at + (self.queued or 0.0) + self.duration


@dataclass(frozen=True, slots=True)
class HostSample:
    """The machine at one moment of a run; None or `unknown` where the system does not tell.

    Attributes:
        at: Seconds since the epoch.
        monotonic: A clock that is never set and stands still while the machine sleeps, in seconds.
        rss, footprint: Memory of the process, in bytes.
        swap_used, swapped_in, swapped_out: Bytes; the last two since the system started.
        memory_available, memory_limit: Bytes.
        memory_pressure, thermal_state, power_mode, power_source: As on spans.
        side_load: CPU of other processes, in cores, by what they are: `browser`, `ide`, `indexer`, `other`; None where
            it was not read with this sample.
    """

    at: float
    monotonic: float
    rss: int | None = None
    footprint: int | None = None
    swap_used: int | None = None
    swapped_in: int | None = None
    swapped_out: int | None = None
    memory_available: int | None = None
    memory_limit: int | None = None
    memory_pressure: str = "unknown"
    thermal_state: str = "unknown"
    power_mode: str = "unknown"
    power_source: str = "unknown"
    side_load: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to a run, in the place of a result.

    Attributes:
        at: Seconds since the epoch.
        what: `begun`, `resumed`, `interrupted`, `finished`, `branch_stopped`, `tuning_stopped`, or `changed`: what runs
            from here on is not what ran before.
        why: In a few words, such as the numbers that stopped a branch.
    """

    at: float
    what: Literal["begun", "resumed", "interrupted", "finished", "branch_stopped", "tuning_stopped", "changed"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class RunHead:
    """What a run is: written once, before its first request.

    Attributes:
        format: Version of the files.
        run_id: Names the run on spans, metrics and files.
        kind: What made it.
        created_at: Seconds since the epoch.
        engine: `mlx` or `llama_cpp`.
        manifest: The frozen manifest: what runs, canonical, with its `id`. Runs of different ones are not compared.
        conditions: How the machine was when it began, and what the user noted of it, with its `id`.
        arms: In the order in which they run; those that a sweep adds as it goes stand in a file of their own.
        prompts: Of each prompt its id, tier, kind, weight, max_tokens, digest; no text.
        alone: Peak memory in bytes, `peak_rss` and where the system tells it `peak_footprint`, of one autoregressive
            request of the longest prompt, made before any draft was loaded; empty where it was not made.
        options: What else was asked for: repeats, warm-up, cool-down, seconds, load.
    """

    run_id: str
    kind: RunKind
    created_at: float
    engine: str
    manifest: dict[str, object]
    conditions: dict[str, object]
    arms: tuple[Arm, ...]
    prompts: tuple[dict[str, object], ...]
    alone: dict[str, int] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    format: int = FORMAT


@dataclass(frozen=True)
class Run:
    """A run as it was read.

    Attributes:
        head: What it is.
        results: One for each request that ended, warm-up too, in the order they ended.
        host: The machine over time.
        notes: What happened to it.
        faults: Lines that could not be read, each as `FILE:LINE: what is wrong`.
    """

    head: RunHead
    results: tuple[Measured, ...] = ()
    host: tuple[HostSample, ...] = ()
    notes: tuple[Note, ...] = ()
    faults: tuple[str, ...] = ()

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """The requests that count: no warm-up, none that failed."""
        return tuple(each for each in self.results if each.phase == "measured" and each.error is None)

    def of(self, arm: Arm | str) -> tuple[Measured, ...]:
        """Return the requests that count, of one arm."""
        return self._by_arm.get(arm if isinstance(arm, str) else arm.name, ())

    @cached_property
    def _by_arm(self) -> dict[str, tuple[Measured, ...]]:
        found: dict[str, list[Measured]] = {}
        for each in self.measured:
            found.setdefault(each.arm, []).append(each)
        return {name: tuple(requests) for name, requests in found.items()}
