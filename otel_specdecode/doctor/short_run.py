"""Generates with the tiny pair for some seconds and watches the memory. Run as a program: an engine may crash."""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from otel_specdecode.doctor.children import answer
from otel_specdecode.doctor.folding import FoldingObserver
from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory, lifetime_peaks, process_memory
from otel_specdecode.tiny_pair import PROMPTS, model_path

DRAFT_LENGTH = 4
_TOKENS = 32
_INTERVAL_S = 0.05

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
        began = process_memory()
        with _sampling() as samples:
            _work(generate, seconds)
        return {
            "draft_length": DRAFT_LENGTH,
            "counts": observer.totals(),
            "memory": {**_memory(began, samples, lifetime_peaks()), "allocator": _allocator(engine)},
        }


def _work(generate: Generate, seconds: float) -> None:
    ends = time.monotonic() + seconds
    for done, prompt in enumerate(itertools.cycle(PROMPTS)):
        if done and time.monotonic() >= ends:
            return
        turn = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        generate(turn, False)
        generate(turn, True)


@contextmanager
def _sampling() -> Iterator[list[tuple[float, ProcessMemory]]]:
    """Read the memory at 20 Hz on a thread of its own: seconds since the start, and the reading."""
    samples: list[tuple[float, ProcessMemory]] = []
    stop, start = threading.Event(), time.monotonic()

    def sample() -> None:
        while True:
            samples.append((round(time.monotonic() - start, 3), process_memory()))
            if stop.wait(_INTERVAL_S):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def _memory(began: ProcessMemory, samples: list[tuple[float, ProcessMemory]], peaks: LifetimePeaks) -> dict[str, Any]:
    every = max(len(samples) // 25, 1)

    def window(name: str) -> dict[str, int | None]:
        return {f"{at:.3f}": getattr(each, name) for at, each in samples[::every]}

    def highest(name: str) -> int | None:
        return max((value for _, each in samples if (value := getattr(each, name)) is not None), default=None)

    return {
        "loaded": began._asdict(),
        "peak": {name: highest(name) for name in began._fields},
        "lifetime_peak": peaks._asdict(),
        "readings": len(samples),
        "window": {name: window(name) for name in began._fields},
    }


def _allocator(engine: str) -> dict[str, int] | None:
    if engine != "mlx_lm":
        return None
    import mlx.core as mx

    return {"active": mx.get_active_memory(), "peak": mx.get_peak_memory(), "cache": mx.get_cache_memory()}


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
