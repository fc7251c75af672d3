"""The real llama-cpp-python on the tiny pair, in f32 on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.installed import has_llama_cpp, has_peer
from benchmarks.peer import Peer, peer
from benchmarks.real_runs import Run, timed, watched
from benchmarks.sdk import SDK
from benchmarks.streams import K
from benchmarks.synthetic_llama_cpp import ONE_THREAD
from otel_specdecode.engines.llama_cpp.hooks import LlamaCppHooks
from otel_specdecode.tiny_pair import PROMPTS, model_path

OPTIONS: dict[str, Any] = {"n_ctx": 512, **ONE_THREAD}


@contextmanager
def llama_cpp_runs(running: SDK, tokens: int) -> Iterator[dict[str, dict[str, Run]]]:
    """Give what to run by case and variant; nothing where llama-cpp-python is not installed."""
    if not has_llama_cpp():
        yield {}
        return
    with ExitStack() as stack:
        theirs = stack.enter_context(peer()) if has_peer() else None
        hooks = LlamaCppHooks()
        found: dict[str, dict[str, Run]] = {}
        for case, llama in _llamas(stack).items():
            bare: Run = partial(timed, _Streams(llama, tokens).run)
            found[f"llama.cpp, {case}"] = {"bare": bare, "ours": partial(watched, hooks, running.listener, bare)}
            if theirs is not None:
                found[f"llama.cpp, {case}"]["peer"] = partial(_with_peer, theirs, bare)
        yield found


def _llamas(stack: ExitStack) -> dict[str, Any]:
    """Return the target without a draft, with prompt lookup, and with a model as the draft."""
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft
    from otel_specdecode.tiny_pair.gguf import convert

    folder = Path(stack.enter_context(TemporaryDirectory()))
    target = str(convert(model_path("target"), folder / "target.gguf", "f32"))
    draft = convert(model_path("draft"), folder / "draft.gguf", "f32")
    drafts: dict[str, Any] = {
        "AR": None,
        "prompt lookup": LlamaPromptLookupDecoding(num_pred_tokens=K),
        "draft model": stack.enter_context(ModelDraft(draft, target, num_pred_tokens=K, **OPTIONS)),
    }
    return {
        case: stack.enter_context(
            closing(llama_cpp.Llama(target, draft_model=each, logits_all=each is not None, **OPTIONS))
        )
        for case, each in drafts.items()
    }


class _Streams:
    """Three greedy streams that evaluate their whole prompts. How many tokens they have only a whole answer tells."""

    def __init__(self, llama: Any, tokens: int) -> None:
        self._llama, self._limit = llama, tokens
        answers = [self._complete(prompt, stream=False) for prompt in PROMPTS[:3]]
        self._tokens = sum(int(answer["usage"]["completion_tokens"]) for answer in answers)

    def run(self) -> int:
        for prompt in PROMPTS[:3]:
            for _ in self._complete(prompt, stream=True):
                pass
        return self._tokens

    def _complete(self, prompt: str, *, stream: bool) -> Any:
        llama = self._llama
        llama.reset()
        held = getattr(llama.draft_model, "llama", None)
        if held is not None:
            held.reset()
        return llama.create_completion(prompt, max_tokens=self._limit, temperature=0.0, stream=stream)


def _with_peer(theirs: Peer, run: Run) -> tuple[float, float]:
    import llama_cpp

    restore = theirs.instrument(llama_cpp.Llama)
    try:
        return run()
    finally:
        restore()
