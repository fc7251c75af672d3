"""Reads what llama-cpp-python's calls are asked for, and what drafts for them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from otel_specdecode.engines.arguments import Arguments, held, integer, number
from otel_specdecode.engines.llama_cpp.plans import ShorterDraft, length_of
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.plan import Ask, Who
from otel_specdecode.generation.request import ZERO_DRAFT_LENGTH, Method, Mode, Operation, Request, Sampling
from otel_specdecode.identity.gguf import gguf_name
from otel_specdecode.identity.llama_cpp import loaded_model
from otel_specdecode.identity.manifest import Pair
from otel_specdecode.identity.models import LoadedModel, Setting

_MOST_STOPS, _LONGEST_STOP = 16, 256

PROVIDER = "llama_cpp"
"""GenAI provider name. A dot would read as a sub-namespace, so it is not `llama.cpp`."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What drafts for a Llama.

    Attributes:
        method: What proposes tokens.
        length: The configured draft length k, None if it does not tell; 0 without a draft.
        llamas: The Llamas that it holds, of which the first names it.
        settings: What else it was made with: of prompt lookup the longest n-gram, of a custom draft its class.
    """

    method: Method = "none"
    length: int | None = 0
    llamas: tuple[Any, ...] = ()
    settings: tuple[Setting, ...] = ()

    @property
    def llama(self) -> Any:
        """The Llama that a draft model runs on, None where there is none or it is not to be seen."""
        return self.llamas[0] if self.llamas else None

    @property
    def speculates(self) -> bool:
        """Whether it proposes anything."""
        return self.method != "none" and (self.length is None or self.length >= 1)


class CallReader:
    """Turns a call's arguments into a request."""

    def __init__(self, llama_class: type, lookup_class: type) -> None:
        """Know the engine's classes.

        Args:
            llama_class: `llama_cpp.Llama`.
            lookup_class: `llama_cpp.llama_speculative.LlamaPromptLookupDecoding`.
        """
        self._llama_class = llama_class
        self._lookup_class = lookup_class
        self._models: weakref.WeakKeyDictionary[Any, LoadedModel] = weakref.WeakKeyDictionary()

    def draft(self, llama: Any) -> Draft:
        """Return what drafts for a Llama at this moment.

        A draft model is any draft that holds a Llama in an attribute; what keeps its model elsewhere is custom.
        """
        model, limit = getattr(llama, "draft_model", None), None
        if isinstance(model, ShorterDraft):
            model, limit = model.inner, model.limit
        if model is None:
            return Draft()
        length = length_of(model)
        if limit is not None:
            length = limit if length is None else min(length, limit)
        if isinstance(model, self._lookup_class):
            ngram = integer(held(model, "max_ngram_size"))
            return Draft("prompt_lookup", length, settings=() if ngram is None else (("max_ngram_size", ngram),))
        parts = held(model, "__dict__")
        inner = tuple(each for each in (parts or {}).values() if isinstance(each, self._llama_class))
        if inner:
            return Draft("draft_model", length, inner)
        return Draft("custom", length, settings=(("class", type(model).__name__),))

    def ask(self, llama: Any, operation: Operation, who: Who) -> Ask:
        """Return what a call asks for, before it is made."""
        draft = self.draft(llama)
        draft_model = None if draft.llama is None else model_name(draft.llama)
        return Ask(PROVIDER, model_name(llama), draft.method, draft.length, draft_model, operation, who)

    def request(self, llama: Any, operation: Operation, sampling: Sampling, *, stream: bool) -> Request:
        """Return the request of one call."""
        draft = self.draft(llama)
        requested: Mode = "autoregressive" if draft.method == "none" else "speculative"
        mode: Mode = "speculative" if draft.speculates else "autoregressive"
        return Request(
            operation=operation,
            provider=PROVIDER,
            model=model_name(llama),
            mode=mode,
            requested_mode=requested,
            method=draft.method,
            draft_model=None if draft.llama is None else model_name(draft.llama),
            draft_max_tokens=draft.length,
            fallback_reason=None if mode == requested else ZERO_DRAFT_LENGTH,
            stream=stream,
            sampling=sampling,
            pair=self.pair(llama, draft),
        )

    def pair(self, llama: Any, draft: Draft) -> Pair | None:
        """Return what runs, None if it cannot be told."""
        try:
            inner = None if draft.llama is None else self.learn(draft.llama)
            return Pair(PROVIDER, draft.method, self.learn(llama), inner, draft.settings)
        except Exception as error:
            report_fault("what runs could not be told", error)
            return None

    def learn(self, llama: Any) -> LoadedModel:
        """Return what a Llama is. The first call has its files read, on a thread of their own."""
        model = self._models.get(llama)
        if model is None:
            model = self._models[llama] = loaded_model(llama)
            model.read_soon()
        return model


def model_name(llama: Any) -> str | None:
    """Return the name a caller knows a Llama's model by, from its file."""
    path = getattr(llama, "model_path", None)
    return _name_of(path) if isinstance(path, str) and path else None


@lru_cache(maxsize=64)
def _name_of(path: str) -> str | None:
    """Return what a file is called; kept, since it asks the file system and every request has a name."""
    return gguf_name(path)


def sampling_of(arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sampling:
    """Return the sampling parameters of a call, the engine's own defaults included; at temperature 0 only what counts.

    No limit on tokens is None: the engine goes on to the end of the context where it is 0 or less.
    """

    def get(name: str) -> Any:
        return arguments.get(name, args, kwargs)

    temperature = number(get("temperature" if "temperature" in arguments.names else "temp"))
    limit = integer(get("max_tokens"))
    chosen = temperature != 0
    stop = get("stop") or ()
    return Sampling(
        max_tokens=limit if limit is not None and limit > 0 else None,
        temperature=temperature,
        top_p=number(get("top_p")) if chosen else None,
        top_k=integer(get("top_k")) if chosen else None,
        seed=integer(get("seed")),
        frequency_penalty=number(get("frequency_penalty")),
        presence_penalty=number(get("presence_penalty")),
        stop_sequences=_stop_sequences((stop,) if isinstance(stop, str) else stop),
    )


def _stop_sequences(given: Iterable[Any]) -> tuple[str, ...]:
    """Return stop sequences fit for an attribute: a few texts, not too long, in valid Unicode."""
    texts = (each for each in given if isinstance(each, str))
    return tuple(
        each[:_LONGEST_STOP].encode(errors="replace").decode() for each in itertools.islice(texts, _MOST_STOPS)
    )
