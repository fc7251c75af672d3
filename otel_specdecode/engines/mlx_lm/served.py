"""A completion that MLX-LM's server makes: asked for on one thread, generated on another, handed back by a queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from queue import Queue
from typing import Any, NamedTuple

from otel_specdecode.engines.arguments import held, integer, number
from otel_specdecode.engines.mlx_lm.hazards import CACHE_REUSE_SHORT
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Content, Message, Ticket, text_part
from otel_specdecode.generation.plan import Permit, Plan
from otel_specdecode.generation.record import Ending
from otel_specdecode.generation.request import Operation, Request, Sampling
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import error_type
from otel_specdecode.generation.timeline import CHUNK_TOKENS, FLUSH_NS

GONE = (ConnectionError, TimeoutError)
"""What writing to a client, or reading from it, raises when that is no longer there."""


class Kinds(NamedTuple):
    """What the server puts on a request's queue, beside progress, exceptions and None at the end."""

    context: type
    response: type


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asked the server for, as far as the call to the engine does not tell.

    Attributes:
        accepted: Clock reading (ns) at which the server began to serve the request.
        operation: GenAI operation name.
        stream: Whether the client gets tokens as they come.
        sampling: Sampling parameters.
        messages: The prompt, None unless the user opted in to it.
    """

    accepted: int
    operation: Operation
    stream: bool
    sampling: Sampling
    messages: tuple[Message, ...] | None = None

    def of(self, request: Request, generation: Generation) -> Request:
        """Return an engine's request as it was asked for, when its generation begins to run."""
        sampling = replace(
            self.sampling,
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            top_k=request.sampling.top_k,
        )
        queued = generation.waited_since(self.accepted)
        return replace(request, operation=self.operation, stream=self.stream, sampling=sampling, queued=queued)


class ServedCall:
    """One completion on its way. It belongs to its queue, and is gone when the server drops that.

    Where the server batches, nobody else sees the request, and this records it, on the generating thread: a client
    that reads slowly changes nothing. Only an end that the generating thread does not tell comes from the thread that
    serves. Where the server runs requests one by one, the engine's own stream is watched, and this tells only what
    that cannot know.

    Attributes:
        ticket: Leave to record it, taken on the thread that serves, under the request's own context.
        asked: What the client asked for.
        finish_reason: The server's word for the end, None before it.
        single: It runs alone, as a stream that is watched itself.
        waiting: Held until it is planned, so that whoever plans knows how many there are: a server with a draft runs
            one at a time, however many ask.
    """

    def __init__(
        self,
        ticket: Ticket,
        asked: Asked,
        kinds: Kinds,
        request: Callable[[], Request],
        plan: Callable[[Request], Plan],
    ) -> None:
        """Wait for the generating thread.

        Args:
            ticket: Leave to record it.
            asked: What the client asked for.
            kinds: What the generating thread puts on the queue.
            request: Reads what runs, on the generating thread as it takes the request.
            plan: Tells whoever plans of a request that nothing can be decided of any more.
        """
        self.ticket = ticket
        self.asked = asked
        self.finish_reason: str | None = None
        self.single = False
        self.waiting: Permit | None = None
        self._kinds = kinds
        self._request: Callable[[], Request] | None = request
        self._plan = plan
        self._prompt_tokens: int | None = None
        self._generation: Generation | None = None
        self._texts: list[str] | None = None
        self._stamps: deque[int] = deque()
        self._last = 0
        self._flush_at = 0
        self._failure: BaseException | None = None
        self._left = False
        self._handing_over = threading.Lock()  # once a second and at the end, never for a token

    def pass_on(self, item: Any) -> None:
        """Look at what the generating thread is about to put on the queue. Never raises."""
        try:
            kind = type(item)
            if kind is self._kinds.response:
                self._respond(item)
            elif kind is tuple:
                self._progress(*item)
            elif kind is self._kinds.context:
                self._take(item)
            elif item is None:
                if self.finish_reason is not None:
                    self.end(None, answered=True)
            elif isinstance(item, BaseException):
                self._failure = None if self._left else item
                self.end(item)
        except Exception as error:
            report_fault("a completion of the server could not be recorded", error)

    def wait_no_more(self) -> None:
        """Note that it is about to be planned, or never will be."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.release()

    def note_prompt(self, generation: Generation, speculative: bool) -> None:
        """Correct what a single request's prompt and cache are by what the server made of them.

        After a speculative run the server's cache lacks the entry of its last token, while the key that it is found by
        has that token: the next request then skips it.
        """
        if self._prompt_tokens is None or generation.input_tokens is None:
            return
        reused = generation.cached_tokens
        fed = generation.input_tokens - reused
        generation.input_tokens = self._prompt_tokens
        generation.cached_tokens = max(self._prompt_tokens - fed, 0)
        if speculative and reused < generation.cached_tokens:
            generation.meet_hazard(CACHE_REUSE_SHORT)

    def follow(self, responses: Iterator[Any]) -> Iterator[Any]:
        """Yield what the server's own iterator yields; on the thread that serves."""
        try:
            yield from responses
        except (GeneratorExit, *GONE):
            raise  # whoever serves the request knows whether the client got its answer
        except BaseException as error:
            self.end(error)
            raise
        else:
            self.end(None, answered=self.finish_reason is not None)

    def end(self, failure: BaseException | None, answered: bool = False) -> None:
        """End a batched request; the first call counts. Never raises.

        Args:
            failure: What the generating thread handed over in the place of tokens.
            answered: There is a whole answer. Up to mlx-lm 0.30.7 the thread that serves looks for stop strings, and
                leaves the tokens that follow.
        """
        with self._handing_over:
            generation, self._generation = self._generation, None
            if generation is not None:
                self._end(generation, failure, answered)

    def is_own(self, failure: BaseException | None) -> bool:
        """Tell whether an exception is the generating thread's, whatever its class: no client went away then."""
        return failure is not None and failure is self._failure

    def leave(self) -> None:
        """Note that nobody serves the request any more; a failure's traceback holds the engine's caches."""
        self._left, self._failure = True, None
        self.wait_no_more()

    def _end(self, generation: Generation, failure: BaseException | None, answered: bool) -> None:
        try:
            self._fold(generation)
            at = generation.clock()
            if answered:
                ending = Ending("complete", generation.timeline.last_yield or at, self.finish_reason or "stop")
            elif failure is not None:
                ending = Ending("error", at, "error", error_type(failure))
            else:
                ending = Ending("closed", at, "closed")
            generation.end(ending)
        except Exception as error:
            report_fault("the end of a completion of the server could not be recorded", error)

    def _take(self, context: Any) -> None:
        """The generating thread takes the request: it is tokenised, and begins unless a watched stream follows."""
        self._prompt_tokens = len(context.prompt)
        read, self._request = self._request, None
        if self.single or read is None:
            return
        request = read()
        self.wait_no_more()
        generation = Generation(self.ticket, lambda own: self.asked.of(request, own))
        generation.plan = self._plan(request)
        generation.input_tokens = self._prompt_tokens
        generation.cached_tokens = max(getattr(context, "prompt_cache_count", 0), 0)
        if self.ticket.captures_content:
            generation.content = Content()
            generation.content.prompt = self.asked.messages
            self._texts = generation.content.completion
        self._last = generation.begin()
        self._flush_at = self._last + FLUSH_NS
        self._generation = generation

    def _progress(self, processed: int, total: int) -> None:
        """Prompt tokens were processed; with all of them the first pass after the prompt has been entered."""
        generation = self._generation
        if generation is not None and processed >= total and generation.ledger.prefill_end is None:
            generation.ledger.prefill_end = generation.clock()

    def _respond(self, response: Any) -> None:
        if not self.single:
            now = time.perf_counter_ns()
            self._stamps.append(now)
            if self._texts is not None:
                self._texts.append(response.text)
            if now >= self._flush_at or len(self._stamps) >= CHUNK_TOKENS:
                self._hand_over(now)
        if response.finish_reason is not None:
            self.finish_reason = response.finish_reason

    def _hand_over(self, now: int) -> None:
        with self._handing_over:
            self._flush_at = now + FLUSH_NS
            if self._generation is None:
                self._stamps.clear()
                return
            self._fold(self._generation)
            self._generation.hand_over(now)

    def _fold(self, generation: Generation) -> None:
        """Take the tokens handed out so far: each was asked for when the one before it came, whoever waits for it."""
        timeline, stamps = generation.timeline, self._stamps
        while stamps:
            timeline.resumes.append(self._last)
            self._last = stamps.popleft()
            timeline.yields.append(self._last)
            generation.ledger.plain_passes += 1


class WatchedQueue(Queue[Any]):
    """The queue of one completion, which looks at what the generating thread puts on it.

    Attributes:
        call: Whose queue it is.
    """

    def __init__(self, call: ServedCall) -> None:
        """Make the queue of a call."""
        super().__init__()
        self.call = call

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Look at an item, then put it on the queue."""
        self.call.pass_on(item)
        super().put(item, block, timeout)


def asked_for(request: Any, arguments: Any, stream: bool, accepted: int, with_messages: bool) -> Asked:
    """Read a completion request of the server, and the generation arguments beside it.

    Args:
        request: MLX-LM's `CompletionRequest`.
        arguments: MLX-LM's `GenerationArguments`.
        stream: Whether the client gets tokens as they come.
        accepted: Clock reading (ns) at which the server began to serve it.
        with_messages: Whether to keep the prompt.
    """
    logits = held(arguments, "logits")
    sampling = Sampling(
        max_tokens=integer(held(arguments, "max_tokens")),
        seed=integer(held(arguments, "seed")),
        frequency_penalty=number(held(logits, "frequency_penalty")) or None,
        presence_penalty=number(held(logits, "presence_penalty")) or None,
        stop_sequences=tuple(filter(_is_text, held(arguments, "stop_words") or ())),
    )
    operation: Operation = "chat" if held(request, "request_type") == "chat" else "text_completion"
    return Asked(accepted, operation, stream, sampling, _messages(request) if with_messages else None)


def sampler_arguments(arguments: Any) -> Sampling:
    """Return what the server makes a sampler from; at temperature 0 nothing else has an effect."""
    sampling = held(arguments, "sampling")
    temperature = number(held(sampling, "temperature"))
    if not temperature:
        return Sampling(temperature=temperature)
    top_p, top_k = number(held(sampling, "top_p")), integer(held(sampling, "top_k"))
    return Sampling(temperature=temperature, top_p=top_p or None, top_k=top_k or None)


def _messages(request: Any) -> tuple[Message, ...] | None:
    try:
        if request.request_type != "chat":
            return (Message("user", (text_part(str(request.prompt)),)),)
        return tuple(
            Message(str(message.get("role")), (text_part(content),))
            for message in request.messages
            if _is_text(content := message.get("content"))
        )
    except Exception as error:
        report_fault("a prompt could not be read for content capture", error)
        return None


def _is_text(value: object) -> bool:
    return isinstance(value, str)
