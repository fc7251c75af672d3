"""Watches the methods of `Llama` that generate: completions and chats outside, their token loops and passes inside."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType, GeneratorType
from typing import Any

from otel_specdecode.engines.arguments import Arguments, checked
from otel_specdecode.engines.llama_cpp import plans, server
from otel_specdecode.engines.llama_cpp.calls import PROVIDER, CallReader, Draft, model_name, sampling_of
from otel_specdecode.engines.llama_cpp.content import keep_answer, keep_messages, keep_prompt
from otel_specdecode.engines.llama_cpp.engine import ends_generation
from otel_specdecode.engines.llama_cpp.frames import Frames
from otel_specdecode.engines.llama_cpp.passes import PassWatch, chunks
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Content, Relay, Ticket
from otel_specdecode.generation.plan import Plan
from otel_specdecode.generation.request import Operation, Request, Sampling
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import Outcome, watch
from otel_specdecode.generation.texts import Segment, TextCall

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Method = Callable[..., Any]


@dataclass(slots=True)
class Call:
    """A completion or chat in flight.

    Attributes:
        llama: The Llama it was called on; an ended stream that is still held must not hold the model.
        sampling: Its sampling parameters.
        text: Its recording.
        plan: How its token loops are to run; None: as asked for.
        kept: Tokens whose KV entries were kept as a chat handler began to evaluate by itself, None if none did.
    """

    llama: weakref.ref[Any]
    sampling: Sampling
    text: TextCall
    plan: Plan | None = None
    kept: int | None = None

    def is_on(self, llama: Any) -> bool:
        """Return whether it was called on a Llama."""
        return self.llama() is llama


Owner = Call | PassWatch


class Watching:
    """The wrappers of `create_completion`, `create_chat_completion`, `generate`, `eval` and `embed`."""

    def __init__(self, relay: Relay, reader: CallReader, llama_class: Any, idle: Callable[[], None]) -> None:
        """Read the signatures once.

        Args:
            relay: Who records; the wrappers pass through while it is nobody.
            reader: Reads requests.
            llama_class: `llama_cpp.Llama`.
            idle: Called when nothing is in flight any more, maybe inside garbage collection.

        Raises:
            TypeError: If a parameter that is read is missing.
        """
        self.frames: Frames[Owner] = Frames(idle)
        self._silent: Frames[None] = Frames()
        self._relay = relay
        self._reader = reader
        self._completion = _checked(llama_class.create_completion, "prompt", "max_tokens", "temperature", "stream")
        self._chat = _checked(llama_class.create_chat_completion, "messages", "max_tokens", "temperature", "stream")
        self._loop = _checked(llama_class.generate, "tokens", "temp", "logits_processor")
        self._embedding = _checked(llama_class.embed, "input", "return_count")
        self._completing = getattr(getattr(llama_class, "_create_completion", None), "__code__", None)
        checked(llama_class.eval, "tokens")

    def construct(self, wrapped: Method, llama: Any, args: Args, kwargs: Kwargs) -> None:
        """Learn what is loaded as it is loaded: its file may be another one by the first request."""
        wrapped(*args, **kwargs)
        try:
            if self._relay.anyone_listens() and not llama.model_params.vocab_only:
                self._reader.learn(llama)
        except Exception as error:
            report_fault("what was loaded could not be told", error)

    def create_completion(self, wrapped: Method, llama: Any, args: Args, kwargs: Kwargs) -> Any:
        """Watch one completion, whole or as a stream of chunks."""
        return self._text("text_completion", self._completion, wrapped, llama, args, kwargs)

    def create_chat_completion(self, wrapped: Method, llama: Any, args: Args, kwargs: Kwargs) -> Any:
        """Watch one chat; the completions its handler makes are parts of it."""
        return self._text("chat", self._chat, wrapped, llama, args, kwargs)

    def generate(self, wrapped: Method, llama: Any, args: Args, kwargs: Kwargs) -> Any:
        """Watch one token loop, as a part of the completion that runs it or by itself."""
        owner = self.frames.nearest(sys._getframe())
        if isinstance(owner, Call) and owner.is_on(llama):
            return self._segment(owner, llama, wrapped, args, kwargs)
        ticket = None if self._is_inner(llama, sys._getframe()) else self._relay.admit()
        if ticket is None:
            return wrapped(*args, **kwargs)
        # A completion by a reference taken before the instrumentation leaves its loop when it is done.
        left = None if sys._getframe(2).f_code is self._completing else "closed"
        return self._bare(ticket, wrapped, llama, args, kwargs, left)

    def watched_eval(self, original: Method) -> Method:
        """Return what stands for `Llama.eval`, through which every pass goes."""
        held, frames = self.frames.held, self.frames

        @functools.wraps(original)
        def watched(llama: Any, *args: Any, **kwargs: Any) -> Any:
            if not held:
                return original(llama, *args, **kwargs)
            owner = frames.nearest(sys._getframe(1))
            if isinstance(owner, PassWatch) and owner.llama is llama:
                if owner.plain is not None and args and len(args[0]) == 1:
                    owner.plain.plain_passes += 1
                    return original(llama, *args, **kwargs)
                return self._evaluate(owner, original, args, kwargs)
            self._evaluate_beside(owner, llama, args[0] if args else kwargs.get("tokens", ()))
            return original(llama, *args, **kwargs)

        return watched

    def embed(self, wrapped: Method, llama: Any, args: Args, kwargs: Kwargs) -> Any:
        """Watch one call for embeddings."""
        if self._is_inner(llama, sys._getframe()):
            return wrapped(*args, **kwargs)
        ticket = self._relay.admit()
        if ticket is None:
            return wrapped(*args, **kwargs)
        request = Request(
            "embeddings", PROVIDER, model_name(llama), stream=False, pair=self._reader.pair(llama, Draft())
        )
        accepted = server.accepted()
        generation = Generation(ticket, lambda own: replace(request, queued=own.waited_since(accepted)))
        counted = self._embedding.get("return_count", args, kwargs)

        def outcome(result: Any, _: bool) -> Outcome:
            if result is not None:
                vectors, generation.input_tokens = result if counted else (result, None)
                generation.embedding_dimensions = _dimensions(vectors)
            return Outcome(None, True, False)

        return TextCall(generation, outcome).run(partial(wrapped, *args, **kwargs), lazy=False)

    def _text(
        self, operation: Operation, arguments: Arguments, wrapped: Method, llama: Any, args: Args, kwargs: Kwargs
    ) -> Any:
        if self._relay.observer is None:
            return wrapped(*args, **kwargs)
        if self._silent.runs(sys._getframe()):
            return self._silently(wrapped, args, kwargs)
        if self._is_inner(llama, sys._getframe()):
            return wrapped(*args, **kwargs)
        ticket = self._relay.admit()
        call = None if ticket is None else self._call(ticket, operation, arguments, llama, args, kwargs)
        if call is None:
            return self._silently(wrapped, args, kwargs)
        with self.frames.claimed(id(sys._getframe()), call):
            lazy = bool(arguments.get("stream", args, kwargs))
            result = call.text.run(partial(wrapped, *args, **kwargs), lazy=lazy)
        if isinstance(result, GeneratorType):
            self.frames.claim(result, call)
        return result

    def _silently(self, wrapped: Method, args: Args, kwargs: Kwargs) -> Any:
        """Run a call that is not recorded: what it calls, now or as its stream goes on, is not either."""
        with self._silent.claimed(id(sys._getframe()), None):
            result = wrapped(*args, **kwargs)
        if isinstance(result, GeneratorType):
            self._silent.claim(result, None)
        return result

    def _call(
        self, ticket: Ticket, operation: Operation, arguments: Arguments, llama: Any, args: Args, kwargs: Kwargs
    ) -> Call | None:
        try:
            sampling = sampling_of(arguments, args, kwargs)
            stream = bool(arguments.get("stream", args, kwargs))
        except Exception as error:
            report_fault("a call could not be read", error)
            return None
        prompt = arguments.get("messages" if operation == "chat" else "prompt", args, kwargs)
        accepted = server.accepted()

        def request(own: Generation) -> Request | None:
            if self._relay.observer is None:
                return None
            request = self._reader.request(llama, operation, sampling, stream=stream)
            return replace(request, queued=own.waited_since(accepted))

        generation = Generation(ticket, request)
        keep = None
        if ticket.captures_content:
            generation.content = Content()
            keep = partial(keep_answer, generation.content)
            if operation == "chat":
                keep_messages(generation.content, prompt)
            else:
                keep_prompt(generation.content, llama, prompt)
        plan = generation.plan = self._plan(ticket, llama, operation)
        changed = plans.changes(plan, self._reader.draft(llama).length)
        return Call(weakref.ref(llama), sampling, TextCall(generation, _read_end, keep), plan if changed else None)

    def _plan(self, ticket: Ticket, llama: Any, operation: Operation) -> Plan:
        return self._relay.plan(ticket, partial(self._reader.ask, llama, operation))

    def _segment(self, call: Call, llama: Any, wrapped: Method, args: Args, kwargs: Kwargs) -> Any:
        """Follow the token loop of a completion."""
        call.text.begin()
        stream = wrapped(*args, **kwargs)
        if not isinstance(stream, GeneratorType):
            return stream
        limit, processors = call.sampling.max_tokens, self._has_processors(args, kwargs)
        passes = PassWatch(llama, call.text.generation, limit, processors)
        passes.kept, call.kept = call.kept, None
        self.frames.claim(stream, passes)
        planned = stream if call.plan is None else plans.limited(stream, llama, call.plan)
        return call.text.follow(planned, Segment(call.text, passes.finished))

    def _bare(self, ticket: Ticket, wrapped: Method, llama: Any, args: Args, kwargs: Kwargs, left: str | None) -> Any:
        """Follow a token loop that the caller runs; `left`: the finish reason where it is left early."""

        def request(_: Generation) -> Request | None:
            if self._relay.observer is None:
                return None
            sampling = sampling_of(self._loop, args, kwargs)
            return self._reader.request(llama, "text_completion", sampling, stream=True)

        def outcome(_: Generation, token: Any, exhausted: bool) -> Outcome:
            finished = passes.finished(token)
            if exhausted or (token is not None and ends_generation(llama, token)):
                return Outcome("stop", True, finished)
            return Outcome(left, False, finished)

        stream = wrapped(*args, **kwargs)
        if not isinstance(stream, GeneratorType):
            return stream
        generation = Generation(ticket, request)
        plan = generation.plan = self._plan(ticket, llama, "text_completion")
        passes = PassWatch(llama, generation, None, self._has_processors(args, kwargs))
        self.frames.claim(stream, passes)
        changed = plans.changes(plan, self._reader.draft(llama).length)
        return watch(plans.limited(stream, llama, plan) if changed else stream, generation, outcome)

    def _is_inner(self, llama: Any, frame: FrameType) -> bool:
        """Return whether a call is part of a watched one, its draft at work, or part of a silent one."""
        owner = self.frames.nearest(frame)
        if isinstance(owner, Call):
            return owner.is_on(llama)
        return (owner is not None and owner.drafts(llama)) or self._silent.runs(frame)

    def _has_processors(self, args: Args, kwargs: Kwargs) -> bool:
        processors = self._loop.get("logits_processor", args, kwargs) or ()
        return any(getattr(each, "__name__", None) != "logit_bias_processor" for each in processors)

    def _evaluate(self, passes: PassWatch, original: Method, args: Args, kwargs: Kwargs) -> Any:
        """Note a pass that a watched token loop makes."""
        first = not passes.prompt_seen
        try:
            tokens = args[0] if args else kwargs["tokens"]
            if first:
                passes.enter_prompt(tokens, self._reader.draft(passes.llama))
            else:
                passes.enter(tokens)
        except Exception as error:
            passes.lose()
            report_fault("a target pass could not be counted", error)
        result = original(passes.llama, *args, **kwargs)
        if first:
            try:
                passes.leave_prompt()
            except Exception as error:
                report_fault("the end of prefill could not be read", error)
        return result

    @staticmethod
    def _evaluate_beside(owner: Owner | None, llama: Any, tokens: Any) -> None:
        """Note an evaluation that no watched token loop makes itself: its draft's, or a chat handler's own."""
        try:
            if isinstance(owner, PassWatch) and owner.drafts(llama):
                owner.enter_draft(llama, tokens)
            elif isinstance(owner, Call) and owner.is_on(llama):
                owner.text.begin()
                owner.text.generation.ledger.prefill_passes += chunks(len(tokens), llama)
                owner.kept = int(llama.n_tokens) if owner.kept is None else owner.kept
        except Exception as error:
            report_fault("a pass could not be counted", error)


def _checked(method: Method, *needed: str) -> Arguments:
    """Return a method's parameters without the Llama itself."""
    return checked(partial(method, None), *needed)


def _read_end(last: Any, exhausted: bool) -> Outcome:
    """Read how a call ended from its last chunk or its whole answer."""
    try:
        reason = last["choices"][0]["finish_reason"]
    except (KeyError, IndexError, TypeError):
        reason = None
    if exhausted or reason is not None:
        return Outcome(reason, True, False)
    return Outcome("closed", False, False)


def _dimensions(vectors: Any) -> int | None:
    """Return the length of each vector in one vector, a list of them, or one for each token in lists."""
    while isinstance(vectors, list) and vectors and isinstance(vectors[0], list):
        vectors = vectors[0]
    return len(vectors) if isinstance(vectors, list) and vectors else None
