"""MLX-LM: requests through `mlx_lm.stream_generate`, which takes its draft and its length with each call."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_specdecode.acceptance.engines.given import check_stop, shipped_model, shown, whole_numbers, without_paths
from otel_specdecode.acceptance.engines.interface import BeforeDrafts, Engine, Models
from otel_specdecode.acceptance.engines.texts import PromptTokens, until
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.engines.mlx_lm.calls import PROVIDER
from otel_specdecode.identity.manifest import Pair, vocabularies_differ
from otel_specdecode.identity.mlx_lm import loaded_model
from otel_specdecode.identity.models import LoadedModel

_TITLE = "MLX-LM"
_LEAST = {"kv_bits": 2, "kv_group_size": 1, "quantized_kv_start": 0, "prefill_step_size": 1}
_IGNORED_WITH_DRAFT = ("max_kv_size",)
# mlx-lm's own defaults are 2048 without a draft and 512 with one: the prompt would cost more passes with a draft.
_PREFILL_STEP = 2048

_one_at_a_time = threading.Lock()
"""MLX is not made for generating on several threads at once: on MLX 0.29 two of them that sample end the process."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model, its tokenizer, and what it is."""

    name: str
    model: Any
    tokenizer: Any
    identity: LoadedModel


class MLXSession:
    """Models of MLX-LM. Threads share them, and their requests wait for each other, as in `mlx_lm.server` with a draft.

    Nothing is downloaded. Each request has new prompt caches. A stop text ends a request by closing its stream, since
    `stream_generate` knows none.
    """

    def __init__(self, models: Models, before_drafts: BeforeDrafts | None = None, /) -> None:
        """Load the models.

        Args:
            models: What to load.
            before_drafts: Is called when the target is loaded, and no draft.

        Raises:
            AcceptanceError: MLX-LM or a model is missing, or they cannot be used together.
        """
        ENGINE.start()
        check_stop(models.stop)
        self._options: dict[str, Any] = {"prefill_step_size": _PREFILL_STEP, **_checked_options(models.options)}
        self._stop = models.stop
        self._queued: dict[int, float] = {}
        self._peaks: dict[int, int] = {}
        self._drafts: dict[str, _Loaded] = {}
        self._target = _load(models.target)
        context = dict(self._target.identity.identity().settings).get("max_position_embeddings")
        self._tokens = PromptTokens(self._target.name, self._encode, context if isinstance(context, int) else None)
        if models.drafts:
            _check_trims(self._target, "the target")
        if before_drafts is not None:
            before_drafts(self)
        self._drafts = {label: _load(location) for label, location in models.drafts.items()}
        for draft in self._drafts.values():
            _check_draft(self._target, draft)

    def count(self, prompt: Prompt) -> int:
        """Return how many tokens a prompt has; raises as Session.count()."""
        return len(self._tokens.of(prompt))

    def stream(self, arm: Arm, prompt: Prompt, seed: int, thread: int) -> Generator[str, None, None]:
        """Make one request; see Session.stream()."""
        import mlx.core as mx
        import mlx_lm
        from mlx_lm.sample_utils import make_sampler

        speculation = self._speculation(arm)
        tokens = self._tokens.of(prompt)
        asked = time.perf_counter()
        with _one_at_a_time:
            self._queued[thread] = time.perf_counter() - asked
            _end_streams_with_thread()
            mx.random.seed(seed)
            mx.reset_peak_memory()
            stream = mlx_lm.stream_generate(
                self._target.model,
                self._target.tokenizer,
                tokens,
                max_tokens=prompt.max_tokens,
                sampler=make_sampler(temp=arm.temperature, top_k=arm.top_k),
                **speculation,
                **self._options,
            )
            try:
                with closing(stream):
                    yield from until((response.text for response in stream), self._stop)
            finally:
                self._peaks[thread] = int(mx.get_peak_memory())

    def queued(self, thread: int) -> float | None:
        """Return the seconds that a thread's last request waited for others."""
        return self._queued.get(thread)

    def pair(self, arm: Arm) -> Pair:
        """Return what an arm runs on; raises as Session.pair()."""
        draft = self._draft(arm)
        if draft is None:
            return Pair(PROVIDER, "none", self._target.identity)
        return Pair(PROVIDER, "draft_model", self._target.identity, draft.identity)

    def engine_peak(self, thread: int) -> int | None:
        """Return the peak of MLX's allocator in a thread's last request, the models included."""
        return self._peaks.get(thread)

    def close(self) -> None:
        """Let go of the models, and have MLX give back what it keeps for reuse."""
        import mlx.core as mx

        del self._target, self._drafts, self._tokens
        mx.clear_cache()

    def _speculation(self, arm: Arm) -> dict[str, Any]:
        draft = self._draft(arm)
        return {} if draft is None else {"draft_model": draft.model, "num_draft_tokens": arm.draft_length}

    def _draft(self, arm: Arm) -> _Loaded | None:
        if not arm.speculative:
            return None
        if arm.draft not in self._drafts:
            raise AcceptanceError(f"no draft {arm.draft!r} was given, as {arm.name} asks for.")
        return self._drafts[arm.draft]

    def _encode(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt: of a text as `stream_generate` makes them, of messages as the template is."""
        tokenizer = self._target.tokenizer
        if prompt.messages is None:
            text = prompt.text or ""
            added = tokenizer.bos_token is None or not text.startswith(tokenizer.bos_token)
        elif not (tokenizer.chat_template or getattr(tokenizer, "has_chat_template", False)):
            raise AcceptanceError(
                f"{self._target.name} has no chat template, so prompt {prompt.id!r} cannot have messages: give it text."
            )
        else:
            messages = [dict(each) for each in prompt.messages]
            text, added = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False), False
        return list(tokenizer.encode(text, add_special_tokens=added))


ENGINE = Engine(name="mlx", title=_TITLE, module="mlx_lm", extras="acceptance,mlx", load=MLXSession)


class _StreamsOfThread:
    """Ends the MLX streams of a thread, with the thread.

    From MLX 0.31.2 on each thread has streams of its own. On a CPU those that are left behind end the process with an
    abort as it exits, now and then. They cannot be ended earlier: compiled functions go on using them.
    """

    def __del__(self) -> None:
        import mlx.core as mx

        mx.clear_streams()


_of_thread = threading.local()


def _end_streams_with_thread() -> None:
    import mlx.core as mx

    if threading.current_thread() is not threading.main_thread() and hasattr(mx, "clear_streams"):
        _of_thread.streams = getattr(_of_thread, "streams", None) or _StreamsOfThread()


def _checked_options(given: Mapping[str, int | float | str | bool]) -> dict[str, int]:
    for name in _IGNORED_WITH_DRAFT:
        if name in given:
            raise AcceptanceError(f"{_TITLE} leaves {name} out where there is a draft, so arms would not be alike.")
    return whole_numbers(_TITLE, given, _LEAST)


def _load(location: str) -> _Loaded:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a tokenizer's class may ask the hub for news of a local folder
    import mlx_lm

    folder, name = str(_folder(location)), shown(location)
    try:
        model, tokenizer = mlx_lm.load(folder)[:2]
    except Exception as error:
        said = f"{type(error).__name__}: {without_paths(error, folder)}"
        raise AcceptanceError(f"{_TITLE} cannot load {name} ({said}).") from error
    return _Loaded(name, model, tokenizer, loaded_model(folder, tokenizer, None))


def _folder(location: str) -> Path:
    shipped = shipped_model(location)
    if shipped is not None:
        return shipped
    path = Path(location).expanduser()
    if path.is_file():
        raise AcceptanceError(f"{shown(location)} is a file, and {_TITLE} loads folders; llama.cpp loads GGUF files.")
    folder = path if path.is_dir() else _in_hub_cache(location)
    if not (folder / "config.json").is_file() or not any(folder.glob("model*.safetensors")):
        raise AcceptanceError(f"{shown(location)} holds no model for {_TITLE}: config.json and model*.safetensors.")
    return folder


def _in_hub_cache(repository: str) -> Path:
    import mlx_lm.utils

    utils: Any = mlx_lm.utils
    try:
        return Path(utils.hf_repo_to_path(repository))
    except (OSError, ValueError) as error:  # not there or not whole, or no name of a repository
        raise AcceptanceError(
            f"there is no model {shown(repository)}: it is no folder, and not whole in the local hub cache. Nothing is "
            "downloaded here: fetch it first, for example with `hf download`."
        ) from error


def _check_draft(target: _Loaded, draft: _Loaded) -> None:
    """Raise AcceptanceError where MLX-LM's own commands would refuse a draft, or it would corrupt the text."""
    _check_trims(draft, "a draft")
    sizes = draft.tokenizer.vocab_size, target.tokenizer.vocab_size
    if sizes[0] != sizes[1]:
        found = f"it has {sizes[0]} tokens, the target {sizes[1]}"
    elif vocabularies_differ(target.identity.identity(), draft.identity.identity()):
        found = "their tokens are others"
    else:
        return
    raise AcceptanceError(
        f"{draft.name} cannot draft for {target.name}: {found}. Take a draft of the target's own model family, which "
        "has the same tokenizer."
    )


def _check_trims(loaded: _Loaded, role: str) -> None:
    from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

    if not can_trim_prompt_cache(make_prompt_cache(loaded.model)):
        raise AcceptanceError(
            f"{loaded.name} cannot be {role}: its caches cannot take back a rejected token. Take a model of attention "
            "alone."
        )
