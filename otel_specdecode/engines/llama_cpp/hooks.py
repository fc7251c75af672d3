"""Puts the wrappers in place as llama-cpp-python is imported, and takes them out again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import wrapt

from otel_specdecode.engines.llama_cpp import server
from otel_specdecode.engines.llama_cpp.calls import CallReader
from otel_specdecode.engines.llama_cpp.watching import Watching
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Observer, Relay

_MODULE = "llama_cpp.llama"

_CONSTRUCTOR = "__init__"  # a class may have its parent's
_INNER = ("generate", "eval")
"""What goes on being watched for streams in flight."""

Hook = Callable[..., Any]


class _Patch(NamedTuple):
    name: str
    original: Any
    replacement: Any


class LlamaCppHooks:
    """Watches `llama_cpp.Llama` from install() to remove(); may be installed before llama-cpp-python is imported.

    Writes only to that class, so that every Llama and every subclass is reached, also one made before, and to the
    module of its web server. The wrappers are made once, so that streams in flight go on with whoever observes next.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._relay = Relay()
        self._class: Any = None
        self._watching: Watching | None = None
        self._wrappers: dict[str, Callable[[Any], Any]] = {}
        self._patches: list[_Patch] = []
        self._waiting = False
        self._server = server.ServerHooks()

    def install(self, observer: Observer) -> None:
        """Put the wrappers in place for an observer, now where llama-cpp-python is imported, else when it is."""
        self._relay.observer = observer
        if self._class is not None:
            self._apply()
        elif not self._waiting:
            self._waiting = True
            wrapt.register_post_import_hook(self.imported, _MODULE)
            for module in self._server.modules:
                wrapt.register_post_import_hook(self._server_imported, module)

    def remove(self) -> None:
        """Restore the class; what has begun is still recorded.

        While streams are in flight their tokens and passes go on being counted: what that takes is restored with the
        last of them.
        """
        self._relay.observer = None
        self._restore()

    def imported(self, module: ModuleType) -> None:
        """Take in `llama_cpp.llama`, or a module with a class of the same shape."""
        try:
            from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

            reader = CallReader(module.Llama, LlamaPromptLookupDecoding)
            watching = Watching(self._relay, reader, module.Llama, self._idle)
            self._class, self._watching = module.Llama, watching
            self._wrappers = {
                _CONSTRUCTOR: _bound(watching.construct),
                "create_completion": _bound(watching.create_completion),
                "create_chat_completion": _bound(watching.create_chat_completion),
                "generate": _bound(watching.generate),
                "embed": _bound(watching.embed),
                "eval": watching.watched_eval,
            }
            own = vars(module.Llama)
            self._patches = [self._patch(name) for name in self._wrappers if name in own or name != _CONSTRUCTOR]
        except Exception as error:
            report_fault("this version of llama-cpp-python is not watched: Llama is not as expected", error)
            self._class, self._patches = None, []
            return
        if self._relay.observer is not None:
            self._apply()

    def _server_imported(self, module: ModuleType) -> None:
        try:
            self._server.find(module)
        except Exception as error:
            report_fault(f"{module.__name__} is not watched, as it is not as expected", error)
            return
        if self._relay.observer is not None:
            self._server.apply()

    def _apply(self) -> None:
        """Put every wrapper in place, around what others have put there meanwhile unless ours is in it already."""
        self._server.apply()
        for place, patch in enumerate(self._patches):
            current = vars(self._class)[patch.name]
            if patch.replacement in _layers(current):
                continue
            wanted = patch if current is patch.original else self._patch(patch.name)
            self._patches[place] = wanted
            setattr(self._class, wanted.name, wanted.replacement)
        self._relay.anyone_listens()

    def _restore(self) -> None:
        self._server.restore()
        for patch in self._patches:
            in_use = patch.name in _INNER and self._watching is not None and self._watching.frames.any_runs()
            if not in_use and vars(self._class).get(patch.name) is patch.replacement:
                setattr(self._class, patch.name, patch.original)

    def _patch(self, name: str) -> _Patch:
        original = vars(self._class)[name]
        return _Patch(name, original, self._wrappers[name](original))

    def _idle(self) -> None:
        """Restore what remove() had to leave, once nothing is in flight."""
        if self._relay.observer is None:
            self._restore()


def _layers(function: Any) -> Iterator[Any]:
    """Yield a function and what it wraps, as far as it tells."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def _bound(hook: Hook) -> Callable[[Any], Any]:
    """Return what wraps a method so that a hook is called with the bound original and the Llama."""

    def wrapper(original: Any) -> Any:
        @functools.wraps(original)
        def watched(llama: Any, *args: Any, **kwargs: Any) -> Any:
            return hook(original.__get__(llama), llama, args, kwargs)

        return watched

    return wrapper
