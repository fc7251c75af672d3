"""llama.cpp: requests through `llama_cpp.Llama.create_completion`, whose draft belongs to the `Llama` object."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from otel_specdecode.acceptance.engines.given import check_stop, shipped_model, shown, whole_numbers, without_paths
from otel_specdecode.acceptance.engines.interface import BeforeDrafts, Engine, Models
from otel_specdecode.acceptance.engines.texts import PromptTokens
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.engines.llama_cpp.calls import CallReader
from otel_specdecode.engines.llama_cpp.engine import keeps_state
from otel_specdecode.identity.gguf import read_gguf
from otel_specdecode.identity.manifest import Pair

PROMPT_LOOKUP = "prompt-lookup"
"""Names the draft that llama-cpp-python itself brings, which looks up what once followed the last two tokens."""

_TITLE = "llama.cpp"
_LEAST = {"n_ctx": 1, "n_batch": 2, "n_threads": 1, "n_gpu_layers": -1}
_BLOCK = 256
"""llama.cpp rounds a context up to a multiple of this; llama-cpp-python remembers only what was asked for."""
_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class _Seat:
    """What the requests of one thread run on.

    Attributes:
        alone: Serves autoregressive requests, as a program without speculation has it.
        drafted: Serves the others; None without drafts. Each request sets its draft.
        drafts: By label.
    """

    alone: Any
    drafted: Any
    drafts: dict[str, Any]

    def llama(self, arm: Arm) -> Any:
        """Return what serves an arm, with its draft and that draft's length set."""
        if not arm.speculative:
            return self.alone
        draft = self.drafted.draft_model = self.drafts[arm.draft]
        draft.num_pred_tokens = arm.draft_length
        return self.drafted


class LlamaCppSession:
    """Models of llama.cpp. Threads share the weights' pages in memory; all else each has of its own, so none waits.

    Autoregressive requests run on a `Llama` without a draft and without `logits_all`, speculative ones on a second one
    with both, as llama-cpp-python requires: what copying all logits costs is a cost of speculation. Each request begins
    with empty KV caches.
    """

    def __init__(self, models: Models, before_drafts: BeforeDrafts | None = None, /) -> None:
        """Load the models, once for each thread.

        Args:
            models: What to load.
            before_drafts: Is called when the target is loaded, and no draft.

        Raises:
            AcceptanceError: llama-cpp-python or a model is missing, or they cannot be used together.
        """
        ENGINE.start()
        check_stop(models.stop)
        self._stop = list(models.stop)
        with ExitStack() as opened:
            target = _file(models.target, opened)
            drafts = {label: _draft_file(location, opened) for label, location in models.drafts.items()}
            self._options = _options(models, target)
            self._seats = [_Seat(self._llama(target, opened), None, {}) for _ in range(models.threads)]
            name = shown(models.target)
            encode = partial(_encode, self._seats[0].alone, name)
            self._tokens = PromptTokens(name, encode, self._options["n_ctx"])
            if before_drafts is not None:
                before_drafts(self)
            if drafts:
                self._seats = [self._with_drafts(seat.alone, target, drafts, opened) for seat in self._seats]
            self._pairs = _pairs(self._seats[0])
            self._opened = opened.pop_all()

    def count(self, prompt: Prompt) -> int:
        """Return how many tokens a prompt has; raises as Session.count()."""
        return len(self._tokens.of(prompt))

    def stream(self, arm: Arm, prompt: Prompt, seed: int, thread: int) -> Generator[str, None, None]:
        """Make one request; see Session.stream()."""
        self._check(arm)
        llama = self._seats[thread].llama(arm)
        for each in (llama, getattr(llama.draft_model, "llama", None)):
            if each is not None:
                each.reset()  # or what this prompt has in common with the last one would not be read again
        stream = llama.create_completion(
            prompt=self._tokens.of(prompt),
            max_tokens=prompt.max_tokens,
            temperature=arm.temperature,
            # The sampling is the arm's alone: llama-cpp-python would cut the distribution four times by default.
            top_k=arm.top_k,
            top_p=1.0,
            min_p=0.0,
            typical_p=1.0,
            repeat_penalty=1.0,
            seed=seed,
            stop=self._stop,
            stream=True,
        )
        with closing(stream):
            for chunk in stream:
                yield chunk["choices"][0]["text"]

    def queued(self, thread: int) -> float | None:  # noqa: ARG002 - no thread waits
        """Return None: requests do not wait for each other."""
        return None

    def pair(self, arm: Arm) -> Pair:
        """Return what an arm runs on; raises as Session.pair()."""
        self._check(arm)
        return self._pairs[arm.draft if arm.speculative else None]

    def engine_peak(self, thread: int) -> int | None:  # noqa: ARG002 - llama.cpp does not tell
        """Return None: llama.cpp does not tell."""
        return None

    def close(self) -> None:
        """Free the models, and what was converted for them."""
        self._opened.close()

    def _with_drafts(self, alone: Any, target: Path, drafts: dict[str, Path | None], opened: ExitStack) -> _Seat:
        if keeps_state(alone):
            raise AcceptanceError(
                f"{shown(str(target))} is a recurrent or hybrid model, which cannot take back a rejected token. "
                "It runs without drafts only."
            )
        drafted = self._llama(target, opened, logits_all=True)
        return _Seat(alone, drafted, {label: self._draft(file, drafted, opened) for label, file in drafts.items()})

    def _llama(self, file: Path, opened: ExitStack, **options: Any) -> Any:
        from llama_cpp import Llama

        try:
            llama = Llama(str(file), **self._options, **options)
        except Exception as error:
            raise AcceptanceError(f"{_TITLE} cannot load {without_paths(error, str(file))}.") from error
        return opened.enter_context(closing(llama))

    def _draft(self, file: Path | None, target: Any, opened: ExitStack) -> Any:
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft

        if file is None:
            return LlamaPromptLookupDecoding()
        try:
            return opened.enter_context(ModelDraft(str(file), target, **self._options))
        except ValueError as error:
            raise AcceptanceError(without_paths(error, str(file))) from error

    def _check(self, arm: Arm) -> None:
        if not arm.speculative:
            return
        if arm.draft not in self._seats[0].drafts:
            raise AcceptanceError(f"no draft {arm.draft!r} was given, as {arm.name} asks for.")
        most = int(self._seats[0].drafted.n_batch) - 1
        if arm.draft_length > most:
            # llama.cpp would end the process.
            raise AcceptanceError(
                f"{arm.name} drafts more than the {most} tokens that fit one batch with the token before them: give "
                f"n_batch={arm.draft_length + 1} or more."
            )


ENGINE = Engine(name="llama_cpp", title=_TITLE, module="llama_cpp", extras="acceptance,llama-cpp", load=LlamaCppSession)


def _file(location: str, opened: ExitStack) -> Path:
    shipped = shipped_model(location)
    if shipped is not None:
        return _converted(shipped, opened)
    path = Path(location).expanduser()
    if path.is_dir():
        raise AcceptanceError(f"{shown(location)} is a folder, and {_TITLE} loads GGUF files; MLX-LM loads folders.")
    try:
        read_gguf(path)
    except FileNotFoundError as error:
        raise AcceptanceError(
            f"there is no file {shown(location)}. Nothing is downloaded here: give the path of a GGUF file."
        ) from error
    except (OSError, ValueError) as error:
        raise AcceptanceError(f"{_TITLE} cannot load {shown(location)}: {without_paths(error, str(path))}.") from error
    return path


def _draft_file(location: str, opened: ExitStack) -> Path | None:
    return None if location == PROMPT_LOOKUP else _file(location, opened)


def _converted(folder: Path, opened: ExitStack) -> Path:
    """Return a model of the tiny pair as a GGUF file that lives as long as the session."""
    try:
        from otel_specdecode.tiny_pair import gguf
    except ImportError as error:
        raise AcceptanceError(
            f"{_TITLE} runs the tiny pair from GGUF files; what writes them is missing: pip install gguf safetensors"
        ) from error
    scratch = opened.enter_context(tempfile.TemporaryDirectory(prefix="otel-specdecode-"))
    return gguf.convert(folder, Path(scratch) / f"{folder.name}.gguf", "f16")  # as the weights are stored


def _options(models: Models, target: Path) -> dict[str, Any]:
    given = whole_numbers(_TITLE, models.options, _LEAST)
    context = given.get("n_ctx") or _default_context(target)
    if models.drafts and context % _BLOCK:
        # Near the end of the context a request with a draft would fail.
        more = context + _BLOCK - context % _BLOCK
        raise AcceptanceError(f"n_ctx must be a multiple of {_BLOCK} where there is a draft: {more}, not {context}.")
    # As many threads for one token as for several: llama-cpp-python's defaults differ, and would favour speculation.
    threads = given.get("n_threads") or max((os.cpu_count() or 1) // 2, 1)
    options = {"n_gpu_layers": -1, **given, "n_ctx": context, "n_threads": threads, "n_threads_batch": threads}
    return {**options, "verbose": False}


def _default_context(target: Path) -> int:
    trained = read_gguf(target).context_length or _CONTEXT
    return max(min(trained, _CONTEXT) // _BLOCK, 1) * _BLOCK


def _pairs(seat: _Seat) -> dict[str | None, Pair]:
    """Return what requests run on, as the instrumentation tells it: by the label of the draft, None without one."""
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    reader = CallReader(Llama, LlamaPromptLookupDecoding)
    found: dict[str | None, Pair | None] = {None: reader.pair(seat.alone, reader.draft(seat.alone))}
    for label, draft in seat.drafts.items():
        seat.drafted.draft_model = draft
        found[label] = reader.pair(seat.drafted, reader.draft(seat.drafted))
    pairs = {label: pair for label, pair in found.items() if pair is not None}
    if len(pairs) < len(found):
        raise AcceptanceError(f"this version of {_TITLE} does not tell what a model is.")
    return pairs


def _encode(llama: Any, name: str, prompt: Prompt) -> list[int]:
    """Return the tokens of a prompt: of a text with what the model adds to one, of messages as the chat template is."""
    model = llama._model
    bos, eos = ("" if token == -1 else model.token_get_text(token) for token in (llama.token_bos(), llama.token_eos()))
    if prompt.messages is None:
        text = prompt.text or ""
        begun = bool(bos) and text.startswith(bos)
        return list(llama.tokenize(text.encode(), add_bos=not begun, special=True))
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    template = llama.metadata.get("tokenizer.chat_template")
    if not template:
        raise AcceptanceError(
            f"{name} has no chat template, so prompt {prompt.id!r} cannot have messages: give it text."
        )
    messages: list[Any] = [dict(each) for each in prompt.messages]
    made = Jinja2ChatFormatter(template, eos_token=eos, bos_token=bos)(messages=messages)
    return list(llama.tokenize(made.prompt.encode(), add_bos=False, special=True))
