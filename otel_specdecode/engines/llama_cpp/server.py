"""What `llama_cpp.server` adds to a generation: when its request came, and what becomes of a stream that is dropped.

When a client disconnects, or a request interrupts another's stream, the server leaves the stream in the traceback of
the cancelled task, a cycle: it would end with some later garbage collection, on a server that is idle never.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NamedTuple

from otel_specdecode.generation.faults import report_fault

_APP, _ERRORS = "llama_cpp.server.app", "llama_cpp.server.errors"

_published: ContextVar[list[Any] | None] = ContextVar("otel_specdecode_published", default=None)
_accepted: ContextVar[int | None] = ContextVar("otel_specdecode_accepted", default=None)


class _Patch(NamedTuple):
    owner: Any
    name: str
    original: Any
    replacement: Any


def accepted() -> int | None:
    """Return the clock reading (ns) at which the server began to serve this context's request, None outside of it."""
    return _accepted.get()


class ServerHooks:
    """Watches the server's routes and what publishes a stream, so that a stream is closed as it is dropped."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._patches: list[_Patch] = []
        self.modules = {_ERRORS: self._find_routes, _APP: self._find_streams}

    def find(self, module: ModuleType) -> None:
        """Read what is to be watched of a module of the server.

        Raises:
            AttributeError: If it is missing.
        """
        self._patches += self.modules[module.__name__](module)

    def apply(self) -> None:
        """Put the wrappers in place."""
        for patch in self._patches:
            setattr(patch.owner, patch.name, patch.replacement)

    def restore(self) -> None:
        """Restore the functions. Routes that were made meanwhile go on telling the time, which nobody asks for then."""
        for patch in self._patches:
            if getattr(patch.owner, patch.name) is patch.replacement:
                setattr(patch.owner, patch.name, patch.original)

    @staticmethod
    def _find_routes(module: ModuleType) -> list[_Patch]:
        routes = module.RouteErrorHandler
        make_handler = routes.get_route_handler
        return [_Patch(routes, "get_route_handler", make_handler, _stamping(make_handler))]

    @staticmethod
    def _find_streams(module: ModuleType) -> list[_Patch]:
        publish, iterate = module.get_event_publisher, module.iterate_in_threadpool
        return [
            _Patch(module, "get_event_publisher", publish, _closing(publish)),
            _Patch(module, "iterate_in_threadpool", iterate, _noting(iterate)),
        ]


def _stamping(make_handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes a route's handler, so that it notes when a request came."""

    @functools.wraps(make_handler)
    def stamping(route: Any) -> Any:
        handle = make_handler(route)

        @functools.wraps(handle)
        async def stamped(request: Any) -> Any:
            _accepted.set(time.perf_counter_ns())
            return await handle(request)

        return stamped

    return stamping


def _closing(publish: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(publish)
    async def closing(*args: Any, **kwargs: Any) -> Any:
        streams: list[Any] = []
        token = _published.set(streams)
        try:
            return await publish(*args, **kwargs)
        finally:
            _published.reset(token)
            while streams:
                _close(streams.pop())

    return closing


def _noting(iterate: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(iterate)
    def noting(iterator: Any) -> Any:
        streams = _published.get()
        if streams is not None:
            streams.append(iterator)
        return iterate(iterator)

    return noting


def _close(stream: Any) -> None:
    """Close a generator; one that is finished takes it. No thread is inside it: cancelled tasks wait for theirs."""
    try:
        if hasattr(stream, "close"):
            stream.close()
    except Exception as error:
        report_fault("a stream that the server dropped could not be closed", error)
