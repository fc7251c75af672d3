"""Reads what mlx-lm's generate calls are asked for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from otel_specdecode.engines.arguments import Arguments, integer, number
from otel_specdecode.generation.plan import Ask, Who
from otel_specdecode.generation.request import ZERO_DRAFT_LENGTH, Method, Mode, Operation, Request, Sampling
from otel_specdecode.identity.manifest import Pair
from otel_specdecode.identity.names import ModelBook, public_name

PROVIDER = "mlx"
"""GenAI provider name. Conventions list no local engine; this is the value other emitters use."""

DEFAULT_DRAFT_LENGTH = 2
"""mlx-lm's draft length where a call names none (its command line and server name 3)."""


class SamplerBook:
    """Sampling parameters of the samplers that mlx-lm's `make_sampler` built: a sampler itself is a closure."""

    def __init__(self) -> None:
        """Start with no sampler."""
        self._known: weakref.WeakKeyDictionary[Callable[..., Any], Sampling] = weakref.WeakKeyDictionary()

    def remember(self, sampler: Callable[..., Any], arguments: Arguments, args: Any, kwargs: Any) -> None:
        """Remember what a sampler was made from; at temperature 0 nothing else has an effect."""
        temperature = number(arguments.get("temp", args, kwargs))
        if not temperature:
            self._known[sampler] = Sampling(temperature=temperature)
            return
        top_p = number(arguments.get("top_p", args, kwargs))
        top_k = integer(arguments.get("top_k", args, kwargs))
        self._known[sampler] = Sampling(temperature=temperature, top_p=top_p or None, top_k=top_k or None)

    def sampling(self, sampler: Any) -> Sampling:
        """Return the remembered parameters of a sampler, nothing known if it was made otherwise."""
        try:
            known = self._known.get(sampler)
        except TypeError:
            return Sampling()
        return known or Sampling()


class CallReader:
    """Turns a call's arguments into a request.

    Attributes:
        models: Models loaded under instrumentation.
        samplers: Samplers made under instrumentation.
    """

    def __init__(self) -> None:
        """Start with no model known."""
        self.models = ModelBook()
        self.samplers = SamplerBook()

    def request(self, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any], stream: bool) -> Request:
        """Return the request of one generate call.

        Args:
            arguments: Parameters of the called function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            stream: Whether the caller consumes tokens as they come.
        """
        draft = arguments.get("draft_model", args, kwargs)
        mode, requested, length = self._mode(draft, arguments.get("num_draft_tokens", args, kwargs))
        method: Method = "none" if draft is None else "draft_model"
        sampling = self.samplers.sampling(arguments.get("sampler", args, kwargs))
        model = arguments.get("model", args, kwargs)
        return Request(
            operation="text_completion",
            provider=PROVIDER,
            model=self.model_name(model, arguments.get("tokenizer", args, kwargs)),
            mode=mode,
            requested_mode=requested,
            method=method,
            draft_model=None if draft is None else self.models.name_of(draft),
            draft_max_tokens=length,
            fallback_reason=None if mode == requested else ZERO_DRAFT_LENGTH,
            stream=stream,
            sampling=replace(sampling, max_tokens=integer(arguments.get("max_tokens", args, kwargs))),
            pair=self.pair(method, model, draft),
        )

    def ask(
        self, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any], operation: Operation, who: Who
    ) -> Ask:
        """Return what one generate call asks for, before it is made."""
        draft = arguments.get("draft_model", args, kwargs)
        model = self.model_name(arguments.get("model", args, kwargs), arguments.get("tokenizer", args, kwargs))
        length = self.draft_length(arguments, args, kwargs)
        if draft is None:
            return Ask(PROVIDER, model, "none", length, None, operation, who)
        return Ask(PROVIDER, model, "draft_model", length, self.models.name_of(draft), operation, who)

    def draft_length(self, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """Return the draft length of a call; 0 without a draft, None if it is no number."""
        draft, length = (arguments.get(name, args, kwargs) for name in ("draft_model", "num_draft_tokens"))
        return self._mode(draft, length)[2]

    def speculates(self, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a call enters the speculative path and verifies proposals."""
        draft, length = (arguments.get(name, args, kwargs) for name in ("draft_model", "num_draft_tokens"))
        return self._mode(draft, length)[0] == "speculative"

    def model_name(self, model: object, tokenizer: object) -> str | None:
        """Return a model's name: remembered at load, else from where its tokenizer came."""
        known = self.models.name_of(model)
        if known is not None:
            return known
        location = getattr(tokenizer, "name_or_path", None)
        return public_name(location) if isinstance(location, str) and location else None

    def pair(self, method: Method, model: object, draft: object) -> Pair | None:
        """Return what runs, None for a target that was not loaded under instrumentation."""
        target = self.models.model_of(model)
        return None if target is None else Pair(PROVIDER, method, target, self.models.model_of(draft), ())

    @staticmethod
    def _mode(draft: object, draft_length: object) -> tuple[Mode, Mode, int | None]:
        if draft is None:
            return "autoregressive", "autoregressive", 0
        length = DEFAULT_DRAFT_LENGTH if draft_length is None else integer(draft_length)
        verifies = length is None or length >= 1
        return "speculative" if verifies else "autoregressive", "speculative", length


def cached_tokens(prompt_cache: object) -> int:
    """Return the number of prompt tokens whose KV entries a cache already holds; 0 where it does not tell."""
    offsets = [getattr(layer, "offset", 0) for layer in prompt_cache] if isinstance(prompt_cache, (list, tuple)) else []
    return max((offset for offset in offsets if isinstance(offset, int)), default=0)
