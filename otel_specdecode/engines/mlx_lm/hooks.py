"""Puts the wrappers in place as mlx-lm is imported, and takes them out again."""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import wrapt

from otel_specdecode.engines.arguments import Arguments
from otel_specdecode.engines.mlx_lm.batches import BatchHooks
from otel_specdecode.engines.mlx_lm.calls import CallReader
from otel_specdecode.engines.mlx_lm.commands import warn_of_main_module
from otel_specdecode.engines.mlx_lm.server import ServerHooks
from otel_specdecode.engines.mlx_lm.streams import Args, Here, Kwargs, StreamHooks, Wrapped
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Observer, Relay
from otel_specdecode.identity.mlx_lm import loaded_model
from otel_specdecode.identity.names import Loaded, public_name

ENGINE = "mlx_lm"

Wrapper = Callable[[Wrapped, Any, Args, Kwargs], Any]

_MODULES = ("mlx_lm.utils", "mlx_lm.sample_utils", "mlx_lm.generate", "mlx_lm.server")


class _Patch(NamedTuple):
    """A function and what stands in its place: in every mlx-lm module that holds it, or in one holder."""

    original: Any
    replacement: Any
    holder: type | ModuleType | None = None
    name: str = ""
    inherited: bool = False


class MLXLMHooks:
    """Watches mlx-lm from install() to remove(); may be installed before mlx-lm is imported.

    Writes only into `mlx_lm` and its submodules: every attribute there that is one of the watched functions. The
    wrappers are made once, so that those a program has imported go on with whoever observes next.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._relay = Relay()
        self._reader = CallReader()
        self._generating = Here()
        self._patches: dict[str, list[_Patch]] = {}
        self._waiting = False

    def install(self, observer: Observer) -> None:
        """Put the wrappers in place for an observer, now where mlx-lm is imported, else when it is."""
        self._relay.observer = observer
        if self._waiting:
            for name in _MODULES:
                if name in sys.modules:
                    self._imported(sys.modules[name])
            return
        self._waiting = True
        for name in _MODULES:
            wrapt.register_post_import_hook(self._imported, name)

    def remove(self) -> None:
        """Restore every reference that was written; what has begun is still recorded."""
        self._relay.observer = None
        for patches in self._patches.values():
            _restore(patches)

    def _imported(self, module: ModuleType) -> None:
        if self._relay.observer is None:
            return
        name = module.__name__
        try:
            warn_of_main_module()
            build = {
                "mlx_lm.utils": self._loading,
                "mlx_lm.sample_utils": self._samplers,
                "mlx_lm.generate": self._generation,
                "mlx_lm.server": self._server,
            }[name]
            patches = self._patches.get(name)
            if patches is None or not _fits(patches, module):
                patches = self._patches[name] = build(module)
            _apply(patches)
            self._relay.anyone_listens()
        except Exception as error:
            _restore(self._patches.pop(name, []))
            report_fault(f"this version of mlx-lm is not watched: {name} is not as expected", error)

    def _loading(self, module: ModuleType) -> list[_Patch]:
        arguments = Arguments(module.load)

        def load(wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
            result = wrapped(*args, **kwargs)
            try:
                location, model = str(arguments.get(arguments.names[0], args, kwargs)), None
                if self._relay.anyone_listens():
                    model = loaded_model(location, result[1], arguments.get("adapter_path", args, kwargs))
                    model.identity()  # reads the files as they are now; they may be others at the first request
                vocabulary = getattr(result[1], "vocab_size", None)
                self._reader.models.remember(result[0], Loaded(public_name(location), vocabulary, model))
            except Exception as error:
                report_fault("the name of a model could not be remembered", error)
            return result

        return [_patch(module.load, load)]

    def _samplers(self, module: ModuleType) -> list[_Patch]:
        arguments = Arguments(module.make_sampler)

        def make_sampler(wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
            sampler = wrapped(*args, **kwargs)
            try:
                self._reader.samplers.remember(sampler, arguments, args, kwargs)
            except Exception as error:
                report_fault("the parameters of a sampler could not be remembered", error)
            return sampler

        return [_patch(module.make_sampler, make_sampler)]

    def _generation(self, module: ModuleType) -> list[_Patch]:
        steps = (module.generate_step, module.speculative_generate_step)
        streams = StreamHooks(self._relay, self._reader, self._generating, module.stream_generate, steps)
        batches = BatchHooks(self._relay, self._reader, module.batch_generate)
        step_name = "next_generated" if hasattr(module.BatchGenerator, "next_generated") else "next"
        return [
            _patch(module.generate, streams.generate),
            _patch(module.stream_generate, streams.stream_generate),
            _patch(steps[0], streams.generate_step),
            _patch(steps[1], streams.speculative_generate_step),
            _patch(module.batch_generate, batches.batch_generate),
            _method(module.BatchGenerator, "insert", batches.insert),
            _method(module.BatchGenerator, step_name, batches.step),
        ]

    def _server(self, module: ModuleType) -> list[_Patch]:
        hooks = ServerHooks(self._relay, self._reader, self._generating, module)
        handler, generator = module.APIHandler, module.ResponseGenerator
        methods = [name for name in vars(handler) if name.startswith("do_")]
        return [
            *(_method(handler, name, hooks.serve) for name in methods),
            _method(handler, "send_error", hooks.send_error, inherited=True),
            _method(handler, "send_response", hooks.send_response, inherited=True),
            _method(handler, "end_headers", hooks.end_headers, inherited=True),
            _method(generator, "generate", hooks.generate),
            _method(generator, "_serve_single", hooks.serve_single),
            _Patch(module.Queue, hooks.make_queue, module, "Queue"),
        ]


if TYPE_CHECKING:
    _FunctionWrapper = wrapt.FunctionWrapper[..., Any]
else:
    _FunctionWrapper = wrapt.FunctionWrapper  # generic for type checkers only before wrapt 2


class WatchedFunction(_FunctionWrapper):
    """Stands for a function in every respect; like a function it is copied and pickled by its name."""

    def __copy__(self) -> WatchedFunction:
        """Return itself, as for a function."""
        return self

    def __deepcopy__(self, memo: object) -> WatchedFunction:
        """Return itself, as for a function."""
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        """Return how to find the function again, in a process that need not have this package."""
        return pkgutil.resolve_name, (f"{self.__module__}:{self.__qualname__}",)

    def __reduce__(self) -> Any:
        """Return how to find the function again."""
        return self.__reduce_ex__(None)


def _patch(original: Wrapped, wrapper: Wrapper) -> _Patch:
    return _Patch(original, WatchedFunction(original, wrapper))


def _method(holder: type, name: str, wrapper: Wrapper, inherited: bool = False) -> _Patch:
    original = getattr(holder, name) if inherited else vars(holder)[name]

    @functools.wraps(original)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original.__get__(self), self, args, kwargs)

    return _Patch(original, watched, holder, name, inherited)


def _fits(patches: list[_Patch], module: ModuleType) -> bool:
    """Tell whether patches are of this module's functions, and not of those before it was reloaded."""
    held = list(vars(module).values())
    first = patches[0]
    return any(value is one for value in held for one in (first.original, first.replacement, first.holder) if one)


def _apply(patches: list[_Patch]) -> None:
    """Put replacements in every place that holds their original; later imports get them from those."""
    for patch in patches:
        if patch.holder is not None:
            setattr(patch.holder, patch.name, patch.replacement)
            continue
        for module, name in _references(patch.original):
            setattr(module, name, patch.replacement)


def _restore(patches: list[_Patch]) -> None:
    """Put originals back where their replacements are, also where those were imported meanwhile."""
    for patch in patches:
        if patch.holder is not None:
            if vars(patch.holder).get(patch.name) is not patch.replacement:
                continue
            if patch.inherited:
                delattr(patch.holder, patch.name)
            else:
                setattr(patch.holder, patch.name, patch.original)
            continue
        for module, name in _references(patch.replacement):
            setattr(module, name, patch.original)


def _references(value: object) -> Iterator[tuple[ModuleType, str]]:
    """Find every attribute of mlx-lm's loaded modules that is this very object."""
    for module_name, module in list(sys.modules.items()):
        if module_name == ENGINE or module_name.startswith(f"{ENGINE}."):
            for name, held in list(getattr(module, "__dict__", {}).items()):
                if held is value:
                    yield module, name
