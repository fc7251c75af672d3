"""Generates with the tiny pair for some seconds and watches the memory. Run as a program: an engine may crash."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from otel_specdecode.doctor.children import answer
from otel_specdecode.doctor.counted import totals
from otel_specdecode.engines.mlx_lm.memory import allocator_memory
from otel_specdecode.generation.folding import FoldingObserver
from otel_specdecode.host.process_memory import MemoryProbe, ProcessMemory, process_memory
from otel_specdecode.host.sampler import Peaks, PeakSampler
from otel_specdecode.tiny_pair import PROMPTS, model_path

DRAFT_LENGTH = 4
_TOKENS = 32

Generate = Callable[[str, bool], None]
"""Makes one request of a prompt, with or without the draft."""


def run(engine: str, seconds: float) -> dict[str, Any]:
    """Generate, with and without a draft in turn, for so many seconds and at least once each."""
    observer = FoldingObserver()
    loads: Mapping[str, Callable[[FoldingObserver, Path], Generate]] = {"mlx_lm": _mlx_lm, "llama_cpp": _llama_cpp}
    with tempfile.TemporaryDirectory(prefix="otel-specdecode-doctor-") as scratch:
        try:
            generate = loads[engine](observer, Path(scratch))
        except Exception as error:
            return {"failure": f"the tiny pair cannot be loaded ({type(error).__name__})"}
        began, probe = process_memory(), _KeepingProbe()
        sampler = PeakSampler(make_probe=lambda: probe)
        token = sampler.begin()
        sampler.follow(token)
        _work(generate, seconds)
        sampler.end(token)
        allocator = allocator_memory()
        memory = _memory(began, probe.readings, sampler.peaks(token))
        return {
            "draft_length": DRAFT_LENGTH,
            "counts": totals(observer.records),
            "memory": {**memory, "allocator": None if allocator is None else allocator._asdict()},
        }


def _work(generate: Generate, seconds: float) -> None:
    ends = time.monotonic() + seconds
    for done, prompt in enumerate(itertools.cycle(PROMPTS)):
        if done and time.monotonic() >= ends:
            return
        turn = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        generate(turn, False)
        generate(turn, True)


class _KeepingProbe:
    """Reads the memory and keeps each reading, with the seconds since it was made."""

    def __init__(self) -> None:
        self._probe = MemoryProbe()
        self._start = time.monotonic()
        self.readings: list[tuple[float, ProcessMemory]] = []

    def read(self) -> ProcessMemory:
        reading = self._probe.read()
        self.readings.append((time.monotonic() - self._start, reading))
        return reading

    def close(self) -> None:
        self._probe.close()


def _memory(began: ProcessMemory, readings: list[tuple[float, ProcessMemory]], peaks: Peaks) -> dict[str, Any]:
    taken = list(readings)  # the thread may still be at it
    every = max(len(taken) // 25, 1)

    def window(name: str) -> dict[str, int | None]:
        return {f"{at:.3f}": getattr(each, name) for at, each in taken[::every]}

    return {
        "loaded": began._asdict(),
        "peak": {"resident": peaks.resident, "footprint": peaks.footprint},
        "lifetime_peak": {"resident": peaks.resident_lifetime, "footprint": peaks.footprint_lifetime},
        "readings": len(taken),
        "window": {name: window(name) for name in began._fields},
    }


def _mlx_lm(observer: FoldingObserver, scratch: Path) -> Generate:  # noqa: ARG001 - it reads the shipped folders
    import mlx_lm

    from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks

    MLXLMHooks().install(observer)
    model, tokenizer = mlx_lm.load(str(model_path("target")))[:2]
    draft = mlx_lm.load(str(model_path("draft-kd")))[0]

    def generate(prompt: str, speculates: bool) -> None:
        speculation = {"draft_model": draft, "num_draft_tokens": DRAFT_LENGTH} if speculates else {}
        for _ in mlx_lm.stream_generate(model, tokenizer, prompt, max_tokens=_TOKENS, **speculation):
            pass

    return generate


def _llama_cpp(observer: FoldingObserver, scratch: Path) -> Generate:
    from llama_cpp import Llama

    from otel_specdecode.engines.llama_cpp.hooks import LlamaCppHooks
    from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft
    from otel_specdecode.tiny_pair.gguf import convert

    LlamaCppHooks().install(observer)
    options: dict[str, Any] = {"n_ctx": 1024, "verbose": False}
    names = ("target", "draft-kd")
    files = {name: str(convert(model_path(name), scratch / f"{name}.gguf")) for name in names}  # type: ignore[arg-type]
    alone = Llama(files["target"], **options)
    draft: Any = ModelDraft(files["draft-kd"], alone, num_pred_tokens=DRAFT_LENGTH, **options)
    drafted = Llama(files["target"], draft_model=draft, logits_all=True, **options)

    def generate(prompt: str, speculates: bool) -> None:
        (drafted if speculates else alone).create_completion(prompt, max_tokens=_TOKENS, temperature=0.0)

    return generate


if __name__ == "__main__":
    answer(lambda: run(sys.argv[1], float(sys.argv[2])))
