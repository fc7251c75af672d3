"""Watches mlx-lm's generators: `stream_generate` outside, the two step functions inside."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

from otel_specdecode.engines.arguments import Arguments
from otel_specdecode.engines.mlx_lm import hazards
from otel_specdecode.engines.mlx_lm.calls import CallReader, cached_tokens
from otel_specdecode.engines.mlx_lm.passes import DraftStandIn, PassWatch, TargetStandIn
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Observer
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import Outcome, watch

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]
Wrapped = Callable[..., Any]
Stream = Generator[Any, object, None]
MakesStream = Callable[..., Stream]


class StreamCall:
    """A call in flight. Its passes are known once the step function is called, with the models replaced."""

    __slots__ = ("caller_cache", "model", "passes", "speculative")

    def __init__(self, model: object) -> None:
        """Wait for the step function to be called with a model."""
        self.model = model
        self.passes: PassWatch | None = None
        self.speculative = False
        self.caller_cache: list[Any] | None = None


class _ThisThread(threading.local):
    """What a call leaves for the inner one that it is about to make on the same thread."""

    pending: tuple[StreamCall, Generation] | None = None
    whole_text: bool = False


class StreamHooks:
    """The wrappers of `generate`, `stream_generate`, `generate_step` and `speculative_generate_step`.

    Attributes:
        active: False once uninstrumented: wrappers that somebody still holds then pass through.
    """

    def __init__(self, observer: Observer, reader: CallReader, outer: Wrapped, steps: tuple[Wrapped, Wrapped]) -> None:
        """Read the signatures once.

        Args:
            observer: Who records.
            reader: Reads requests.
            outer: mlx-lm's own `stream_generate`.
            steps: mlx-lm's own `generate_step` and `speculative_generate_step`.

        Raises:
            TypeError: If a parameter that is read is missing.
        """
        self.active = True
        self._observer = observer
        self._reader = reader
        self._outer_arguments = checked(outer, "model", "tokenizer", "prompt", "max_tokens", "draft_model")
        self._plain_arguments = checked(steps[0], "prompt", "model", "max_tokens", "prompt_cache")
        self._speculative_arguments = checked(
            steps[1], "prompt", "model", "draft_model", "num_draft_tokens", "max_tokens", "prompt_cache"
        )
        self._outer_code = getattr(outer, "__code__", None)
        self._here = _ThisThread()
        self._short_caches = hazards.ShortCaches()

    def generate(self, wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
        """Tell the `stream_generate` that `generate` makes that its caller waits for the whole text."""
        self._here.whole_text = True
        try:
            return wrapped(*args, **kwargs)
        finally:
            self._here.whole_text = False

    def stream_generate(self, wrapped: MakesStream, _: object, args: Args, kwargs: Kwargs) -> Stream:
        """Watch one `stream_generate` call."""
        whole_text, self._here.whole_text = self._here.whole_text, False
        stream = wrapped(*args, **kwargs)
        ticket = self._observer.admit() if self.active else None
        if ticket is None:
            return stream
        call = StreamCall(self._outer_arguments.get("model", args, kwargs))

        def request(generation: Generation) -> Request | None:
            if not self.active:
                return None
            self._here.pending = (call, generation)
            return self._reader.request(self._outer_arguments, args, kwargs, stream=not whole_text)

        generation = Generation(ticket, request)
        if generation.content is not None:
            generation.content.prompt = _prompt_text(self._outer_arguments, args, kwargs)
            stream = _collect(stream, generation.content.completion)
        return watch(stream, generation, functools.partial(self._outer_outcome, call))

    def generate_step(self, wrapped: MakesStream, _: object, args: Args, kwargs: Kwargs) -> Stream:
        """Watch the passes of an autoregressive run; its tokens too if nobody outside does."""
        return self._step(self._plain_arguments, wrapped, args, kwargs)

    def speculative_generate_step(self, wrapped: MakesStream, _: object, args: Args, kwargs: Kwargs) -> Stream:
        """Watch the passes of a speculative run; its tokens too if nobody outside does."""
        return self._step(self._speculative_arguments, wrapped, args, kwargs)

    def _step(self, arguments: Arguments, wrapped: MakesStream, args: Args, kwargs: Kwargs) -> Stream:
        model = arguments.get("model", args, kwargs)
        pending = self._here.pending
        if pending is not None and pending[0].model is model:
            self._here.pending = None
            args, kwargs = self._attach(*pending, arguments, args, kwargs)
            return wrapped(*args, **kwargs)
        ticket = self._observer.admit() if self.active else None
        if ticket is None:
            return wrapped(*args, **kwargs)
        call = StreamCall(model)
        original_args, original_kwargs = args, kwargs

        def request(_: Generation) -> Request | None:
            return self._reader.request(arguments, original_args, original_kwargs, stream=True) if self.active else None

        generation = Generation(ticket, request)
        args, kwargs = self._attach(call, generation, arguments, args, kwargs)
        limit = arguments.get("max_tokens", args, kwargs)
        outcome = functools.partial(self._step_outcome, call, limit, self._called_by_engine())
        return watch(wrapped(*args, **kwargs), generation, outcome)

    def _attach(
        self, call: StreamCall, generation: Generation, arguments: Arguments, args: Args, kwargs: Kwargs
    ) -> tuple[Args, Kwargs]:
        """Return the step function's arguments with stand-ins for the models."""
        try:
            model, draft = arguments.get("model", args, kwargs), arguments.get("draft_model", args, kwargs)
            prompt, cache = arguments.get("prompt", args, kwargs), arguments.get("prompt_cache", args, kwargs)
            length = _length(prompt, arguments.get("input_embeddings", args, kwargs))
            generation.cached_tokens = cached_tokens(cache)
            generation.input_tokens = generation.cached_tokens + length
            call.speculative = draft is not None and self._reader.speculates(arguments, args, kwargs)
            call.passes = passes = PassWatch(generation, length, call.speculative)
            if draft is not None:
                hazards.check_call(generation, model, draft, arguments.get("logits_processors", args, kwargs))
                args, kwargs = arguments.replace("draft_model", DraftStandIn(draft, passes), args, kwargs)
            if isinstance(cache, list) and cache:
                call.caller_cache = cache
                self._short_caches.check(generation, cache, prompt)
            return arguments.replace("model", TargetStandIn(model, passes), args, kwargs)
        except Exception as error:
            report_fault("the passes of a generation cannot be counted", error)
            return args, kwargs

    def _outer_outcome(self, call: StreamCall, generation: Generation, response: Any, exhausted: bool) -> Outcome:
        if self._here.pending is not None and self._here.pending[0] is call:
            self._here.pending = None
        finished = response is not None and not response.from_draft
        self._look_back(call, generation, None if response is None else response.token, finished)
        reason = None if response is None else response.finish_reason
        return Outcome(reason or "closed", exhausted or reason is not None, finished)

    def _step_outcome(
        self,
        call: StreamCall,
        limit: object,
        called_by_engine: bool,
        generation: Generation,
        item: Any,
        exhausted: bool,
    ) -> Outcome:
        finished = item is not None and not (call.speculative and item[2])
        self._look_back(call, generation, None if item is None else item[0], finished)
        if exhausted or generation.timeline.emitted() == limit:
            return Outcome("length", True, finished)
        return Outcome(None if called_by_engine else "closed", False, finished)

    def _look_back(self, call: StreamCall, generation: Generation, last_token: object, finished: bool) -> None:
        """Note what only the end of a speculative run shows."""
        if not call.speculative or call.passes is None:
            return
        hazards.check_caches(generation, call.passes)
        if finished and call.caller_cache is not None and isinstance(last_token, int):
            self._short_caches.remember(call.caller_cache, last_token)

    def _called_by_engine(self) -> bool:
        """Tell whether the engine's own `stream_generate`, held since before instrumentation, is calling."""
        frame = sys._getframe(2)
        for _ in range(4):
            if frame.f_code is self._outer_code:
                return True
            if frame.f_back is None:
                return False
            frame = frame.f_back
        return False


def checked(function: Wrapped, *needed: str) -> Arguments:
    """Return a function's parameters.

    Raises:
        TypeError: If one of the needed parameters is missing.
    """
    arguments = Arguments(function)
    missing = [name for name in needed if name not in arguments.names]
    if missing:
        raise TypeError(f"{getattr(function, '__name__', 'function')} has no parameter {', '.join(missing)}")
    return arguments


def _length(prompt: Any, embeddings: Any) -> int:
    """Return the number of prompt tokens that are fed."""
    return len(prompt) if embeddings is None else len(embeddings)


def _prompt_text(arguments: Arguments, args: Args, kwargs: Kwargs) -> str | None:
    prompt, tokenizer = arguments.get("prompt", args, kwargs), arguments.get("tokenizer", args, kwargs)
    try:
        return prompt if isinstance(prompt, str) else str(tokenizer.decode(list(map(int, prompt))))
    except Exception as error:
        report_fault("a prompt could not be read for content capture", error)
        return None


def _collect(stream: Stream, texts: list[str]) -> Stream:
    try:
        for response in stream:
            texts.append(response.text)
            yield response
    finally:
        stream.close()
