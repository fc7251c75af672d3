"""Watches MLX-LM's own HTTP server: requests, and the completions they ask for on its one generating thread."""

from __future__ import annotations

import inspect
import queue
import re
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from types import ModuleType
from typing import Any

from otel_specdecode.engines.arguments import checked, integer
from otel_specdecode.engines.mlx_lm.calls import PROVIDER, CallReader
from otel_specdecode.engines.mlx_lm.served import (
    GONE,
    Asked,
    Kinds,
    ServedCall,
    WatchedQueue,
    asked_for,
    sampler_arguments,
)
from otel_specdecode.engines.mlx_lm.streams import Args, Here, Kwargs, Wrapped
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Exchange, HttpRequest, Relay
from otel_specdecode.generation.plan import Ask, Who
from otel_specdecode.generation.request import ZERO_DRAFT_LENGTH, Request
from otel_specdecode.generation.stream import error_type

COMPLETIONS = ("/v1/completions", "/v1/chat/completions", "/chat/completions")
HEALTH, MODELS = "/health", "/v1/models"
ONE_MODEL = f"{MODELS}/{{model}}"

NOT_IMPLEMENTED = 501

_ABSOLUTE = re.compile(r"[^/?#]*://[^/?#]*(?P<path>[^?#]*)")
_RELATIVE = re.compile(r"/[^?#]*|[^?#:@]*(?![^?#])")

ENGINE_BYPASS = "engine_bypass"
"""Fallback reason of a request whose draft the server never asks."""


def route_of(method: str, target: str) -> str | None:
    """Return the route by which the server serves a request, None if it has none; it looks at the query too."""
    path = path_of(target)
    if target.startswith(MODELS) and method in ("GET", "OPTIONS"):
        return ONE_MODEL if path.startswith(f"{MODELS}/") else MODELS
    known = {"GET": (HEALTH,), "POST": COMPLETIONS, "OPTIONS": (HEALTH, *COMPLETIONS)}.get(method, ())
    return target if target in known else None


def path_of(target: str) -> str:
    """Return the path of a request's target: nothing of its query, its fragment, or a user before its host.

    Empty where it has none, as `host:443` of CONNECT.
    """
    found = _ABSOLUTE.match(target)
    if found is not None:
        return found["path"] or "/"
    relative = _RELATIVE.match(target)
    return "" if relative is None else relative[0]


class Serving:
    """A request that a thread of the server is at.

    Attributes:
        handler: The server's object for it.
        accepted: Clock reading (ns) at which it began to be served.
        exchange: Its record, None if nobody wants to hear of it.
        chosen: Status of the answer once there is one; it may still be held back, or never leave.
        status: Of the answer, None before its head has left.
        call: The completion that it asked for.
    """

    __slots__ = ("accepted", "call", "chosen", "exchange", "handler", "status")

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        """Note that a request begins to be served now."""
        self.accepted = time.perf_counter_ns()
        self.handler = handler
        self.exchange: Exchange | None = None
        self.chosen: int | None = None
        self.status: int | None = None
        self.call: ServedCall | None = None


class _ThisThread(threading.local):
    serving: Serving | None = None
    calling: ServedCall | None = None


class ServerHooks:
    """The wrappers of the server's request handler and of what generates for it."""

    def __init__(self, relay: Relay, reader: CallReader, here: Here, module: ModuleType) -> None:
        """Look at the server's inside once.

        Args:
            relay: Who records; the wrappers pass through while it is nobody.
            reader: Names models.
            here: What the generating thread is at; the watched streams look there.
            module: `mlx_lm.server`.

        Raises:
            AttributeError: If a class or a function is missing.
            TypeError: If one is not what these wrappers know.
        """
        self._relay = relay
        self._reader = reader
        self._generating = here
        self._here = _ThisThread()
        self._arguments = checked(module.ResponseGenerator.generate, "self", "request", "generation_args")
        checked(module.ResponseGenerator._serve_single, "self", "request")
        self._kinds = Kinds(_has(module.GenerationContext, "prompt"), _has(module.Response, "finish_reason"))
        self._queue = module.Queue
        if self._queue is not queue.Queue or "Queue" not in module.ResponseGenerator.generate.__code__.co_names:
            raise TypeError("responses do not come by a queue of their own")
        if not issubclass(module.APIHandler, BaseHTTPRequestHandler):
            raise TypeError("the handler is not that of http.server")

    def serve(self, wrapped: Wrapped, handler: Any, args: Args, kwargs: Kwargs) -> Any:
        """Watch one HTTP request from its head to its answer: a `do_*` method of the handler."""
        return self._serve(wrapped, handler, args, kwargs, headed=True)

    def send_error(self, wrapped: Wrapped, handler: Any, args: Args, kwargs: Kwargs) -> Any:
        """Watch a request that none of the handler's `do_*` methods sees: of another method, or one that is none."""
        headed = NOT_IMPLEMENTED in args[:1] or kwargs.get("code") == NOT_IMPLEMENTED
        return self._serve(wrapped, handler, args, kwargs, headed)

    def _serve(self, wrapped: Wrapped, handler: Any, args: Args, kwargs: Kwargs, headed: bool) -> Any:
        if self._relay.observer is None or self._here.serving is not None:
            return wrapped(*args, **kwargs)
        serving = self._here.serving = Serving(handler)
        serving.exchange = self._begin(handler, headed)
        failure: BaseException | None = None
        try:
            return wrapped(*args, **kwargs)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._here.serving = None
            _finish(serving, failure)
            failure = None  # its traceback holds this frame

    def send_response(self, wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
        """Note the status of an answer, which the handler keeps until the head is whole."""
        serving = self._here.serving
        if serving is not None:
            try:
                serving.chosen = int(args[0] if args else kwargs["code"])
            except Exception as error:
                report_fault("the status of an HTTP answer could not be read", error)
        return wrapped(*args, **kwargs)

    def end_headers(self, wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
        """Note that the head of an answer has left."""
        result = wrapped(*args, **kwargs)
        serving = self._here.serving
        if serving is not None:
            serving.status = serving.chosen
        return result

    def make_queue(self, *args: Any, **kwargs: Any) -> Any:
        """Make a queue: that of a completion which this thread is asking for looks at what is put on it."""
        call, self._here.calling = self._here.calling, None
        return self._queue(*args, **kwargs) if call is None else WatchedQueue(call)

    def generate(self, wrapped: Wrapped, generator: Any, args: Args, kwargs: Kwargs) -> Any:
        """Watch a completion that a request asks for, on the thread that serves the request."""
        call = self._call(generator, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        self._here.calling = call
        try:
            answer = wrapped(*args, **kwargs)
        finally:
            self._here.calling = None
        try:
            context, responses = answer
            return answer if call.single else (context, call.follow(responses))
        except Exception as error:
            report_fault("a completion of the server could not be recorded", error)
            call.end(None)
            return answer

    def serve_single(self, wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
        """Tell the stream that the generating thread is about to make for whom it is."""
        call = _call_of(args[0] if args else kwargs.get("request"))
        if call is None:
            return wrapped(*args, **kwargs)
        call.single = True
        self._generating.call = call
        try:
            return wrapped(*args, **kwargs)
        finally:
            self._generating.call = None

    def _begin(self, handler: BaseHTTPRequestHandler, headed: bool) -> Exchange | None:
        try:
            return self._relay.serve(_head(handler, headed))
        except Exception as error:
            report_fault("an HTTP request could not be recorded", error)
            return None

    def _call(self, generator: Any, args: Args, kwargs: Kwargs) -> ServedCall | None:
        serving, ticket = self._here.serving, self._relay.admit()
        if ticket is None:
            return None
        try:
            request, arguments = (
                self._arguments.get(name, (generator, *args), kwargs) for name in ("request", "generation_args")
            )
            stream = True if serving is None else bool(getattr(serving.handler, "stream", False))
            accepted = time.perf_counter_ns() if serving is None else serving.accepted
            asked = asked_for(request, arguments, stream, accepted, ticket.captures_content)
            call = ServedCall(
                ticket,
                asked,
                self._kinds,
                lambda: self._request(generator.model_provider, arguments),
                lambda request: self._relay.plan(ticket, lambda who: _asked_of(request, asked, who)),
            )
            call.waiting = self._relay.plan(ticket, lambda who: _presence(asked, who)).permit
            if serving is not None:
                serving.call = call
            return call
        except Exception as error:
            report_fault("a completion of the server could not be recorded", error)
            return None

    def _request(self, provider: Any, arguments: Any) -> Request:
        """Return what runs for a batched request: the loaded model, alone.

        mlx-lm 0.30 batches requests of a draft too once it has batched others, and passes the draft over.
        """
        model, draft = provider.model, provider.draft_model
        request = Request(
            operation="text_completion",
            provider=PROVIDER,
            model=self._reader.model_name(model, provider.tokenizer),
            sampling=sampler_arguments(arguments),
            passes_shared=True,
            pair=self._reader.pair("none", model, None),
        )
        if draft is None:
            return request
        length = integer(arguments.num_draft_tokens)
        return replace(
            request,
            requested_mode="speculative",
            method="draft_model",
            draft_model=self._reader.models.name_of(draft),
            draft_max_tokens=length,
            fallback_reason=ZERO_DRAFT_LENGTH if length == 0 else ENGINE_BYPASS,
        )


def _finish(serving: Serving, failure: BaseException | None) -> None:
    """End what a request began. Where its completion still runs, nobody waits for that any more."""
    call, went_away = serving.call, isinstance(failure, GONE)
    if call is not None:
        went_away = went_away and not call.is_own(failure)
        call.leave()
        call.end(None, answered=failure is None)
    if serving.exchange is not None:
        name = None if failure is None else error_type(failure)
        serving.exchange.finish(serving.status, name, went_away)


def _asked_of(request: Request, asked: Asked, who: Who) -> Ask:
    """Return what a batched request asks for: no draft, since none takes part."""
    return Ask(request.provider, request.model, "none", 0, None, asked.operation, who)


def _presence(asked: Asked, who: Who) -> Ask:
    """Return what a request asks for as long as it waits: nothing, but it is there."""
    return Ask(PROVIDER, None, "none", 0, None, asked.operation, who)


def _call_of(request: Any) -> ServedCall | None:
    """Return whose request the generating thread runs; its first part is the queue that responses go to."""
    try:
        return getattr(request[0], "call", None)
    except (TypeError, IndexError, KeyError):
        return None


def _has(kind: type, field: str) -> type:
    if field not in inspect.signature(kind).parameters:
        raise TypeError(f"{kind.__name__} has no field {field}")
    return kind


def _head(handler: Any, headed: bool) -> HttpRequest:
    """Return what a request says of itself.

    Args:
        handler: The server's object for it.
        headed: Its headers were read; those that the handler may have otherwise are of a request before.
    """
    method = handler.command or ""
    target = handler.path if method else ""
    headers: dict[str, str] = {}
    for name, value in handler.headers.items() if headed else ():
        key = name.lower()
        headers[key] = f"{headers[key]},{value}" if key in headers else str(value)
    return HttpRequest(
        method=method,
        path=path_of(target),
        route=route_of(method, target),
        version=handler.request_version.removeprefix("HTTP/") if method else "",
        headers=headers,
        peer=_address(handler.client_address),
        local=_local(handler.connection),
    )


def _local(connection: Any) -> tuple[str, int] | None:
    try:
        return _address(connection.getsockname())
    except OSError:
        return None


def _address(address: Any) -> tuple[str, int] | None:
    """Return the address and the port of a socket of the internet, None for any other."""
    known = isinstance(address, tuple) and len(address) >= 2 and isinstance(address[0], str)
    return (address[0], int(address[1])) if known else None
