"""Watches `batch_generate`: one recording for the batch, one for each prompt under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from otel_specdecode.engines.arguments import checked
from otel_specdecode.engines.mlx_lm.calls import CallReader, cached_tokens
from otel_specdecode.engines.mlx_lm.passes import CountingStandIn
from otel_specdecode.engines.mlx_lm.streams import Args, Kwargs, Wrapped
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Relay
from otel_specdecode.generation.record import Ending
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.running import Generation, ReadsRequest
from otel_specdecode.generation.stream import error_type
from otel_specdecode.generation.timeline import FLUSH_NS


class BatchCall:
    """A batch in flight. Every step of the engine gives each prompt still running one token.

    Attributes:
        generator: The engine's object that runs it, once that took the prompts.
        passes: Passes of the model so far.
    """

    def __init__(
        self, whole: Generation, request: Request, prompts: list[Any], caches: list[Any] | None, limits: object
    ) -> None:
        """Begin to record the batch; its prompts begin when the engine takes them."""
        self._whole = whole
        self._request = request
        self._prompts = prompts
        self._caches = caches
        self._limits = limits
        self._running: dict[Any, Generation] = {}
        self.generator: object = None
        self._began = whole.begin()
        self._flush_at = self._began + FLUSH_NS
        self.passes = 0

    def take(self, uids: list[Any]) -> None:
        """Begin to record the prompts that the engine took under these ids."""
        recording = self._whole.recording
        if recording is None:
            return
        lengths = [
            len(prompt) + (cached_tokens(self._caches[place]) if self._caches else 0)
            for place, prompt in enumerate(self._prompts)
        ]
        self._whole.input_tokens = max(lengths, default=None)
        for place, uid in enumerate(uids):
            limit = self._limits[place] if isinstance(self._limits, list) else self._limits
            sampling = replace(self._request.sampling, max_tokens=limit if isinstance(limit, int) else None)
            request = replace(self._request, batch_size=None, passes_shared=True, sampling=sampling)
            generation = Generation(recording.child(), _always(request))
            generation.input_tokens = lengths[place]
            generation.cached_tokens = lengths[place] - len(self._prompts[place])
            generation.timeline.resumes.append(generation.begin())
            self._running[uid] = generation

    def step(self, asked: int, came: int, responses: list[Any]) -> None:
        """Note the tokens of one engine step, asked for and come at these clock readings (ns)."""
        whole = self._whole
        whole.timeline.resumes.append(asked)
        whole.timeline.yields.append(came)
        whole.ledger.plain_passes += 1
        flush = came >= self._flush_at
        for response in responses:
            generation = self._running.get(response.uid)
            if generation is None:
                continue
            timeline = generation.timeline
            if len(timeline.resumes) == len(timeline.yields):
                timeline.resumes.append(asked)
            timeline.yields.append(came)
            generation.ledger.plain_passes += 1
            if response.finish_reason is not None:
                del self._running[response.uid]
                generation.end(Ending("complete", came, response.finish_reason))
            elif flush:
                generation.hand_over(came)
        if flush:
            self._flush_at = whole.hand_over(came)

    def end(self, failure: BaseException | None) -> None:
        """End the batch and what still runs in it. Never raises."""
        at = self._whole.clock()
        kind, reason = ("closed", "closed") if failure is None else ("error", "error")
        cause = None if failure is None else error_type(failure)
        for generation in self._running.values():
            generation.end(Ending(kind, at, reason, cause))  # type: ignore[arg-type]
        self._running.clear()
        self.generator = None  # it holds the model's stand-in, which holds this call
        self._whole.ledger.prefill_passes = max(self.passes - self._whole.ledger.plain_passes, 0)
        self._whole.end(Ending("complete" if failure is None else "error", at, None, cause))


def _always(request: Request) -> ReadsRequest:
    return lambda _: request


class _ThisThread(threading.local):
    call: BatchCall | None = None


class BatchHooks:
    """The wrappers of `batch_generate` and of the `BatchGenerator` methods it drives."""

    def __init__(self, relay: Relay, reader: CallReader, batch_generate: Wrapped) -> None:
        """Read the signature once.

        Raises:
            TypeError: If a parameter that is read is missing.
        """
        self._relay = relay
        self._reader = reader
        self._arguments = checked(batch_generate, "model", "tokenizer", "prompts", "prompt_caches", "max_tokens")
        self._here = _ThisThread()

    def batch_generate(self, wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
        """Watch one `batch_generate` call."""
        ticket = self._relay.admit()
        if ticket is None:
            return wrapped(*args, **kwargs)
        failure: BaseException | None = None
        call: BatchCall | None = None
        try:
            prompts = self._arguments.get("prompts", args, kwargs)
            request = replace(
                self._reader.request(self._arguments, args, kwargs, stream=False), batch_size=len(prompts)
            )
            whole = Generation(ticket, _always(request))
            caches, limits = (self._arguments.get(name, args, kwargs) for name in ("prompt_caches", "max_tokens"))
            call = BatchCall(whole, request, prompts, caches, limits)
            model = CountingStandIn(self._arguments.get("model", args, kwargs), call)
            args, kwargs = self._arguments.replace("model", model, args, kwargs)
        except Exception as error:
            report_fault("a batch could not be recorded", error)
        around, self._here.call = self._here.call, call
        try:
            return wrapped(*args, **kwargs)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._here.call = around
            if call is not None:
                call.end(failure)
            failure = None  # its traceback holds this frame, and with it the prompts and the model

    def insert(self, wrapped: Wrapped, generator: object, args: Args, kwargs: Kwargs) -> Any:
        """Note which ids the engine gives the prompts."""
        uids = wrapped(*args, **kwargs)
        call = self._here.call
        if call is not None and call.generator is None:
            call.generator = generator
            try:
                call.take(uids)
            except Exception as error:
                report_fault("the prompts of a batch could not be recorded", error)
        return uids

    def step(self, wrapped: Wrapped, generator: object, args: Args, kwargs: Mapping[str, Any]) -> Any:
        """Note the tokens of one engine step."""
        call = self._here.call
        if call is None or call.generator is not generator:
            return wrapped(*args, **kwargs)
        asked = time.perf_counter_ns()
        responses = wrapped(*args, **kwargs)
        came = time.perf_counter_ns()
        if responses:
            try:
                call.step(asked, came, responses)
            except Exception as error:
                report_fault("the tokens of a batch could not be recorded", error)
        return responses
