"""Watches mlx-lm's generators: `stream_generate` outside, the two step functions inside."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from otel_specdecode.engines.arguments import Arguments, checked
from otel_specdecode.engines.mlx_lm import hazards, plans
from otel_specdecode.engines.mlx_lm.calls import CallReader, cached_tokens
from otel_specdecode.engines.mlx_lm.passes import DraftStandIn, PassWatch, TargetStandIn
from otel_specdecode.engines.mlx_lm.served import ServedCall
from otel_specdecode.generation.faults import report_fault, report_fault_later
from otel_specdecode.generation.observer import Content, Message, Relay, text_part
from otel_specdecode.generation.plan import Ask, Plan, Who
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

    __slots__ = ("caller_cache", "passes", "served", "speculative")

    def __init__(self, served: ServedCall | None = None) -> None:
        """Wait for the step function to be called.

        Args:
            served: The completion of MLX-LM's server that it is made for.
        """
        self.served = served
        self.passes: PassWatch | None = None
        self.speculative = False
        self.caller_cache: Sequence[Any] | None = None


class Here(threading.local):
    """For whom a thread generates.

    Attributes:
        call: The completion of MLX-LM's server, None where no server asked.
    """

    call: ServedCall | None = None


class _ThisThread(threading.local):
    """What a call leaves for the inner one that it is about to make on the same thread."""

    def __init__(self) -> None:
        self.pending: list[tuple[StreamCall, Generation]] = []
        self.whole_text = False


class StreamHooks:
    """The wrappers of `generate`, `stream_generate`, `generate_step` and `speculative_generate_step`."""

    def __init__(
        self, relay: Relay, reader: CallReader, generating: Here, outer: Wrapped, steps: tuple[Wrapped, Wrapped]
    ) -> None:
        """Read the signatures once.

        Args:
            relay: Who records; the wrappers pass through while it is nobody.
            reader: Reads requests.
            generating: For whom this thread generates.
            outer: mlx-lm's own `stream_generate`.
            steps: mlx-lm's own `generate_step` and `speculative_generate_step`.

        Raises:
            TypeError: If a parameter that is read is missing.
        """
        self._relay = relay
        self._reader = reader
        self._generating = generating
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
        served, self._generating.call = self._generating.call, None
        ticket = self._relay.admit() if served is None else served.ticket
        if ticket is None:
            return wrapped(*args, **kwargs)
        if served is not None:
            served.wait_no_more()
        plan = self._relay.plan(ticket, functools.partial(self._ask, self._outer_arguments, args, kwargs, served))
        stream = wrapped(*args, **kwargs) if plan.as_asked else self._planned(plan, wrapped, args, kwargs)
        call = StreamCall(served)

        def request(generation: Generation) -> Request | None:
            if self._relay.observer is None:
                return None
            self._here.pending.append((call, generation))
            if generation.content is not None:
                own = _prompt(self._outer_arguments, args, kwargs) if served is None else served.asked.messages
                generation.content.prompt = own
            read = self._reader.request(self._outer_arguments, args, kwargs, stream=not whole_text)
            return read if served is None else served.asked.of(read, generation)

        generation = Generation(ticket, request)
        generation.plan = plan
        if ticket.captures_content:
            generation.content = Content()
            stream = _collect(stream, generation.content.completion)
        return watch(stream, generation, functools.partial(self._outer_outcome, call))

    def generate_step(self, wrapped: MakesStream, _: object, args: Args, kwargs: Kwargs) -> Stream:
        """Watch the passes of an autoregressive run; its tokens too if nobody outside does."""
        return self._step(self._plain_arguments, wrapped, args, kwargs)

    def speculative_generate_step(self, wrapped: MakesStream, _: object, args: Args, kwargs: Kwargs) -> Stream:
        """Watch the passes of a speculative run; its tokens too if nobody outside does."""
        return self._step(self._speculative_arguments, wrapped, args, kwargs)

    def _step(self, arguments: Arguments, wrapped: MakesStream, args: Args, kwargs: Kwargs) -> Stream:
        called_by_engine = self._called_by_engine()
        if called_by_engine and self._here.pending:
            outer = self._here.pending.pop()
            self._read_prompt(*outer, arguments, args, kwargs)
            args, kwargs = self._stand_in(*outer, arguments, args, kwargs)
            return wrapped(*args, **kwargs)
        ticket = self._relay.admit()
        if ticket is None:
            return wrapped(*args, **kwargs)
        call = StreamCall()
        own_args, own_kwargs = args, kwargs
        plan = self._relay.plan(ticket, functools.partial(self._ask, arguments, args, kwargs, None))
        if not plan.as_asked:
            args, kwargs = self._shortened(plan, arguments, args, kwargs)

        def request(generation: Generation) -> Request | None:
            if self._relay.observer is None:
                return None
            self._read_prompt(call, generation, arguments, own_args, own_kwargs)
            return self._reader.request(arguments, own_args, own_kwargs, stream=True)

        generation = Generation(ticket, request)
        generation.plan = plan
        args, kwargs = self._stand_in(call, generation, arguments, args, kwargs)
        limit = arguments.get("max_tokens", args, kwargs)
        outcome = functools.partial(self._step_outcome, call, limit, called_by_engine)
        return watch(wrapped(*args, **kwargs), generation, outcome)

    def _ask(self, arguments: Arguments, args: Args, kwargs: Kwargs, served: ServedCall | None, who: Who) -> Ask:
        operation = "text_completion" if served is None else served.asked.operation
        return self._reader.ask(arguments, args, kwargs, operation, who)

    def _planned(self, plan: Plan, wrapped: MakesStream, args: Args, kwargs: Kwargs) -> Stream:
        """Make the engine's stream of a call as a plan has it, and as it is if that fails."""
        try:
            asked = self._reader.draft_length(self._outer_arguments, args, kwargs)
            planned_args, planned_kwargs = plans.apply(plan, asked, self._outer_arguments, args, kwargs)
        except Exception as error:
            report_fault("a plan could not be applied, and the request runs as asked", error)
            return wrapped(*args, **kwargs)
        return wrapped(*planned_args, **planned_kwargs)

    def _shortened(self, plan: Plan, arguments: Arguments, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Return the arguments of a step function that the program itself calls; it cannot become another one."""
        asked = self._reader.draft_length(arguments, args, kwargs)
        length = plan.length(asked)
        return (args, kwargs) if length == asked else arguments.with_value("num_draft_tokens", length, args, kwargs)

    def _stand_in(
        self, call: StreamCall, generation: Generation, arguments: Arguments, args: Args, kwargs: Kwargs
    ) -> tuple[Args, Kwargs]:
        """Return the step function's arguments with stand-ins for the models, as they are if that fails."""
        try:
            model, draft = (arguments.get(name, args, kwargs) for name in ("model", "draft_model"))
            call.speculative = draft is not None and self._reader.speculates(arguments, args, kwargs)
            passes = PassWatch(generation, _prompt_length(arguments, args, kwargs), call.speculative)
            new_args, new_kwargs = arguments.replace("model", TargetStandIn(model, passes), args, kwargs)
            if draft is not None:
                stand_in = DraftStandIn(draft, passes)
                new_args, new_kwargs = arguments.replace("draft_model", stand_in, new_args, new_kwargs)
        except Exception as error:
            report_fault("the passes of a generation cannot be counted", error)
            generation.ledger.known = False
            return args, kwargs
        call.passes = passes
        return new_args, new_kwargs

    def _read_prompt(
        self, call: StreamCall, generation: Generation, arguments: Arguments, args: Args, kwargs: Kwargs
    ) -> None:
        """Note at the first resume what prompt, cache and draft are."""
        try:
            cache, draft = (arguments.get(name, args, kwargs) for name in ("prompt_cache", "draft_model"))
            generation.cached_tokens = cached_tokens(cache)
            generation.input_tokens = generation.cached_tokens + _prompt_length(arguments, args, kwargs)
            if draft is not None:
                models = (arguments.get("model", args, kwargs), draft)
                sizes = {self._reader.models.vocabulary_of(model) for model in models}
                processors = arguments.get("logits_processors", args, kwargs)
                hazards.check_call(generation, sizes, processors)
            if isinstance(cache, (list, tuple)) and cache:
                call.caller_cache = cache
                self._short_caches.check(generation, cache, arguments.get("prompt", args, kwargs))
            if call.served is not None:
                call.served.note_prompt(generation, draft is not None or generation.plan.autoregressive)
        except Exception as error:
            report_fault("the prompt of a generation could not be read", error)

    def _outer_outcome(self, call: StreamCall, generation: Generation, response: Any, exhausted: bool) -> Outcome:
        if call.passes is None and response is not None:
            generation.ledger.known = False
        self._here.pending = [each for each in self._here.pending if each[0] is not call]
        finished = response is not None and not response.from_draft
        self._look_back(call, generation, None if response is None else response.token, finished)
        reason = None if response is None else response.finish_reason
        if reason is None and call.served is not None:
            reason = call.served.finish_reason  # the server itself looks for stop strings
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
        try:
            hazards.check_caches(generation, call.passes)
            if finished and call.caller_cache is not None and isinstance(last_token, int):
                self._short_caches.remember(call.caller_cache, last_token)
        except Exception as error:
            report_fault_later("the caches of a generation could not be checked", error)

    def _called_by_engine(self) -> bool:
        """Tell whether the engine's own `stream_generate` is calling, watched or held since before instrumentation."""
        frame = sys._getframe(2)
        for _ in range(4):
            if frame.f_code is self._outer_code:
                return True
            if frame.f_back is None:
                return False
            frame = frame.f_back
        return False


def _prompt_length(arguments: Arguments, args: Args, kwargs: Kwargs) -> int:
    """Return the number of prompt tokens that are fed."""
    embeddings = arguments.get("input_embeddings", args, kwargs)
    return len(arguments.get("prompt", args, kwargs) if embeddings is None else embeddings)


def _prompt(arguments: Arguments, args: Args, kwargs: Kwargs) -> tuple[Message, ...] | None:
    prompt, tokenizer = arguments.get("prompt", args, kwargs), arguments.get("tokenizer", args, kwargs)
    try:
        text = prompt if isinstance(prompt, str) else str(tokenizer.decode(list(map(int, prompt))))
        return (Message("user", (text_part(text),)),)
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
