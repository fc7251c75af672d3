"""Closes the streams that `llama_cpp.server` drops, when it drops them.

When a client disconnects, or a request interrupts another's stream, the server leaves the stream in the traceback of
the cancelled task, a cycle: it would end with some later garbage collection, on a server that is idle never.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from otel_specdecode.generation.faults import report_fault

MODULE = "llama_cpp.server.app"

_published: ContextVar[list[Any] | None] = ContextVar("otel_specdecode_published", default=None)


class ServerHooks:
    """Watches the function that publishes a stream, and closes at its end what it iterated over."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._module: ModuleType | None = None
        self._functions: dict[str, tuple[Any, Any]] = {}

    def find(self, module: ModuleType) -> None:
        """Read the functions of `llama_cpp.server.app`.

        Raises:
            AttributeError: If one is missing.
        """
        publish, iterate = module.get_event_publisher, module.iterate_in_threadpool
        self._functions = {
            "get_event_publisher": (publish, _closing(publish)),
            "iterate_in_threadpool": (iterate, _noting(iterate)),
        }
        self._module = module

    def apply(self) -> None:
        """Put the wrappers in place."""
        for name, (_, replacement) in self._functions.items():
            setattr(self._module, name, replacement)

    def restore(self) -> None:
        """Restore the functions."""
        for name, (original, replacement) in self._functions.items():
            if getattr(self._module, name) is replacement:
                setattr(self._module, name, original)


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
