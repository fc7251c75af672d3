"""Runs that no engine made, with the timing of one: a world's dials say what the truth is, noise is added by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from otel_specdecode.acceptance.prompts import Check, Prompt, Tier
from otel_specdecode.acceptance.records import Arm, HostSample, Measured, Note, Passes, Run, RunHead, RunKind

GIB = 2**30
BEGAN = 1_800_000_000.0
EVERY = 5.0
"""Seconds between two samples of the machine."""

INPUT_TOKENS: dict[Tier, int] = {"short": 300, "mid": 3500, "long": 6000}
MANIFEST: dict[str, object] = {
    "id": "0123456789abcdef",
    "engine": {"name": "fake", "version": "1"},
    "target": {"quantization": "float32"},
    "machine": {"profile": "fake", "memory": 32 * GIB},
}


@dataclass(frozen=True)
class World:
    """What is true where a run is made. Durations in seconds, memory in bytes.

    Attributes:
        accept: The chance that a proposed token is right where all before it in its draft were.
        step: A pass of the target.
        draft_step: A pass of the draft.
        contention: By what share each further request at once makes passes longer.
        noise: Spread of the durations, as the standard deviation of their logarithm.
        prefill_rate: Prompt tokens a second.
        draft_prefill: What a draft adds to the time to the first token.
        memory: Of the process without a draft.
        draft_memory: What a draft adds.
        success: The share of answers that pass their check, the same ones in all arms.
        seed: Of all that is random.
    """

    accept: float = 0.85
    step: float = 0.026
    draft_step: float = 0.002
    contention: float = 0.2
    noise: float = 0.03
    prefill_rate: float = 8000.0
    draft_prefill: float = 0.001
    memory: int = 10 * GIB
    draft_memory: int = GIB // 2
    success: float = 0.9
    seed: int = 1

    def acceptance_length(self, k: int) -> float:
        """Return the tokens that a round emits in the mean."""
        return 1 + sum(self.accept**place for place in range(1, k + 1))

    def accept_rate(self, k: int) -> float:
        """Return accepted over compared tokens: all behind the first wrong one are rejected."""
        return (self.acceptance_length(k) - 1) / k

    def break_even_length(self, k: int) -> float:
        """Return how many passes without a draft take as long as a round."""
        return (self.step + k * self.draft_step) / self.step

    def speed_up(self, k: int) -> float:
        """Return how much faster decoding is with a draft."""
        return self.acceptance_length(k) / self.break_even_length(k)


def prompts(
    count: int, tier: Tier = "short", max_tokens: int = 128, *, checked: bool = False, name: str = ""
) -> tuple[Prompt, ...]:
    """Return so many prompts of one kind.

    Args:
        count: How many.
        tier: Of their input.
        max_tokens: Of their answers, which are always that long.
        checked: Whether they have a check.
        name: Begins their ids; that of the tier if it is empty.
    """
    check = Check(exact="yes") if checked else None
    ids = (f"{name or tier}-{number}" for number in range(count))
    return tuple(Prompt(each, "text", None, tier, "code", max_tokens, 1.0, check) for each in ids)


def fake_request(arm: Arm, prompt: Prompt, repeat: int, world: World, at: float = BEGAN) -> Measured:
    """Return one request that was measured.

    Args:
        arm: Its arm.
        prompt: Its prompt.
        repeat: How often the arm had run it before.
        world: What is true.
        at: When it began, in seconds since the epoch.
    """
    rng = np.random.default_rng(_number(world.seed, arm.name, prompt.id, repeat))
    drawn = random.Random(_number(world.seed, "same in all arms", prompt.id, repeat))
    accepted, tokens, finished = _rounds(rng, arm.draft_length, prompt.max_tokens - 1, world)
    rounds = len(accepted) if arm.speculative else 0
    pace = (1 + world.contention * (arm.concurrency - 1)) * np.exp(rng.normal(0, world.noise, len(tokens)))
    passes = (world.step + arm.draft_length * world.draft_step) * pace
    unverified = 0 if finished else arm.draft_length - int(accepted[-1])
    rejected = rounds * arm.draft_length - int(accepted.sum()) - unverified
    input_tokens = INPUT_TOKENS[prompt.tier]
    prefill = input_tokens / world.prefill_rate * float(np.exp(rng.normal(0, world.noise)))
    first = prefill + (world.draft_prefill if arm.speculative else 0.0)
    decode = float(passes.sum())
    seeded = repeat if arm.temperature else 0
    memory = world.memory + (world.draft_memory if arm.speculative else 0)
    return Measured(
        id=f"{_number(arm.name, prompt.id, repeat):016x}",
        arm=arm.name,
        prompt=prompt.id,
        kind=prompt.kind,
        repeat=repeat,
        phase="measured",
        started_at=at,
        weight=prompt.weight,
        finish_reason="length",
        input_tokens=input_tokens,
        output_tokens=prompt.max_tokens,
        duration=first + decode,
        time_to_first_token=first,
        prefill=prefill,
        decode=decode,
        time_per_token=decode / (prompt.max_tokens - 1),
        accepted=int(accepted.sum()),
        rejected=rejected,
        unverified=unverified,
        rounds=rounds,
        finished_rounds=rounds - (0 if finished or not rounds else 1),
        rollbacks=int((accepted < arm.draft_length).sum()) - (0 if finished else 1) if rounds else 0,
        decode_passes=len(tokens),
        draft_passes=rounds * arm.draft_length,
        passes=Passes(tuple(map(int, tokens)), tuple(int(each * 1e6) for each in passes)),
        text_digest=_digest(prompt.id, seeded),
        opening_digest=_digest(drawn.choice("abcd") if arm.temperature else prompt.id),
        check=None if prompt.check is None else drawn.random() < world.success,
        peak_rss=memory,
    )


def fake_run(
    arms: Sequence[Arm],
    prompts: Sequence[Prompt],
    world: World = World(),
    *,
    repeats: int = 1,
    kind: RunKind = "sweep",
    seconds: float = 0.0,
    warm_up: float = 200.0,
    began: float = BEGAN,
    manifest: dict[str, object] | None = None,
) -> Run:
    """Return a run in which nothing went wrong: all prompts in all arms, arm by arm for each prompt.

    Args:
        arms: The arms.
        prompts: The prompts.
        world: What is true.
        repeats: How often each arm runs each prompt.
        kind: What is said to have made it.
        seconds: If above 0, the prompts are repeated until so many seconds have been measured.
        warm_up: Seconds from the beginning to the first request that counts.
        began: When it began, in seconds since the epoch.
        manifest: The frozen manifest; None takes MANIFEST.
    """
    results: list[Measured] = []
    at, repeat = began + warm_up, 0
    while repeat < repeats or (prompts and at < began + warm_up + seconds):
        for prompt in prompts:
            for arm in arms:
                results.append(fake_request(arm, prompt, repeat, world, at))
                at += results[-1].duration / arm.concurrency
        repeat += 1
    head = RunHead(
        run_id=f"fake-{kind}",
        kind=kind,
        created_at=began,
        engine="llama_cpp",
        manifest=MANIFEST if manifest is None else manifest,
        conditions={"id": "fedcba9876543210", "notes": {"ambient": "21 C", "placement": "desk"}},
        alone={"peak_rss": world.memory},
        arms=tuple(arms),
        prompts=tuple({"id": each.id, "tier": each.tier, "kind": each.kind} for each in prompts),
    )
    notes = (Note(began, "begun"), Note(at, "finished"))
    return Run(head, tuple(results), fake_host(began, at, world), notes)


def fake_host(began: float, ended: float, world: World = World()) -> tuple[HostSample, ...]:
    """Return samples of a machine on which all is well, from one moment to another."""
    times = [*np.arange(began, ended, EVERY), ended]
    return tuple(_sample(float(at), began, world) for at in times)


def arms(lengths: Iterable[int], *, temperature: float = 0.0, concurrency: int = 1) -> tuple[Arm, ...]:
    """Return the baseline and an arm for each draft length."""
    return tuple(Arm(k, temperature=temperature, concurrency=concurrency) for k in (0, *lengths))


def _sample(at: float, began: float, world: World) -> HostSample:
    return HostSample(
        at=at,
        monotonic=at - began + 1000.0,
        rss=world.memory + world.draft_memory,
        swap_used=0,
        swapped_in=0,
        swapped_out=0,
        memory_available=12 * GIB,
        memory_limit=32 * GIB,
        memory_pressure="normal",
        thermal_state="nominal",
        power_mode="automatic",
        power_source="ac",
        side_load={"browser": 0.1, "ide": 0.0, "indexer": 0.0, "other": 0.2},
    )


def _rounds(rng: np.random.Generator, k: int, room: int, world: World) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return accepted tokens of each pass, its emitted tokens, and whether the last one was finished."""
    accepted = np.minimum(rng.geometric(1 - world.accept, room) - 1, k) if world.accept < 1 else np.full(room, k)
    last = int(np.searchsorted(np.cumsum(accepted + 1), room))
    accepted = accepted[: last + 1]
    tokens = accepted + 1
    over = int(tokens.sum()) - room
    if over:
        tokens[-1] -= over
        accepted[-1] = tokens[-1]
    return accepted, tokens, not over


def _number(*parts: object) -> int:
    return int.from_bytes(sha256(repr(parts).encode()).digest()[:8], "big")


def _digest(*parts: object) -> str:
    return f"{_number(*parts):016x}"
