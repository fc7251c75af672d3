"""Puts the wrappers in place as mlx-lm is imported, and takes them out again."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import wrapt

from otel_specdecode.engines.arguments import Arguments
from otel_specdecode.engines.mlx_lm.batches import BatchHooks
from otel_specdecode.engines.mlx_lm.calls import CallReader
from otel_specdecode.engines.mlx_lm.streams import Args, Kwargs, StreamHooks, Wrapped
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Observer
from otel_specdecode.identity.names import public_name

ENGINE = "mlx_lm"

_reader = CallReader()
"""Knows the models loaded and samplers made while instrumented, also after instrumenting anew."""

Wrapper = Callable[[Wrapped, Any, Args, Kwargs], Any]


class MLXLMHooks:
    """Watches mlx-lm from install() to remove(); may be installed before mlx-lm is imported.

    Writes only into `mlx_lm` and its submodules: every attribute there that is one of the watched functions.
    """

    def __init__(self, observer: Observer) -> None:
        """Watch for an observer."""
        self._observer = observer
        self._watching: list[StreamHooks | BatchHooks] = []
        self._written: list[tuple[Any, str, Any, Any]] = []
        self._installed = False

    def install(self) -> None:
        """Put the wrappers in place, now where mlx-lm is imported, else when it is."""
        self._installed = True
        for module, hook in (
            ("mlx_lm.utils", self._watch_loading),
            ("mlx_lm.sample_utils", self._watch_samplers),
            ("mlx_lm.generate", self._watch_generation),
        ):
            wrapt.register_post_import_hook(functools.partial(self._imported, hook), module)

    def remove(self) -> None:
        """Restore every reference that was written; what has begun is still recorded."""
        self._installed = False
        for hooks in self._watching:
            hooks.active = False
        for holder, name, original, wrapper in reversed(self._written):
            if vars(holder).get(name) is wrapper:
                setattr(holder, name, original)
        for _, _, original, wrapper in self._written:
            for module, name in _references(wrapper):
                setattr(module, name, original)
        self._watching.clear()
        self._written.clear()

    def _imported(self, hook: Callable[[ModuleType], None], module: ModuleType) -> None:
        if not self._installed:
            return
        try:
            hook(module)
        except Exception as error:
            report_fault(f"this version of mlx-lm is not watched: {module.__name__} is not as expected", error)

    def _watch_loading(self, module: ModuleType) -> None:
        arguments = Arguments(module.load)

        def load(wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
            loaded = wrapped(*args, **kwargs)
            name = public_name(str(arguments.get(arguments.names[0], args, kwargs)))
            if name:
                _reader.names.remember(loaded[0], name)
            return loaded

        self._replace(module.load, load)

    def _watch_samplers(self, module: ModuleType) -> None:
        arguments = Arguments(module.make_sampler)

        def make_sampler(wrapped: Wrapped, _: object, args: Args, kwargs: Kwargs) -> Any:
            sampler = wrapped(*args, **kwargs)
            _reader.samplers.remember(sampler, arguments, args, kwargs)
            return sampler

        self._replace(module.make_sampler, make_sampler)

    def _watch_generation(self, module: ModuleType) -> None:
        steps = (module.generate_step, module.speculative_generate_step)
        streams = StreamHooks(self._observer, _reader, module.stream_generate, steps)
        batch_class = module.BatchGenerator
        batches = BatchHooks(self._observer, _reader, module.batch_generate)
        step_name = "next_generated" if hasattr(batch_class, "next_generated") else "next"
        self._watching += [streams, batches]
        self._replace(module.generate, streams.generate)
        self._replace(module.stream_generate, streams.stream_generate)
        self._replace(steps[0], streams.generate_step)
        self._replace(steps[1], streams.speculative_generate_step)
        self._replace(module.batch_generate, batches.batch_generate)
        self._write(
            batch_class, "insert", batch_class.insert, wrapt.FunctionWrapper(batch_class.insert, batches.insert)
        )
        step = vars(batch_class)[step_name]
        self._write(batch_class, step_name, step, wrapt.FunctionWrapper(step, batches.step))

    def _replace(self, original: Wrapped, wrapper: Wrapper) -> None:
        """Replace a function in every mlx-lm module that holds it; later imports get the wrapper from those."""
        replacement = wrapt.FunctionWrapper(original, wrapper)
        for module, name in _references(original):
            self._write(module, name, original, replacement)

    def _write(self, holder: Any, name: str, original: Any, replacement: Any) -> None:
        setattr(holder, name, replacement)
        self._written.append((holder, name, original, replacement))


def _references(value: object) -> Iterator[tuple[ModuleType, str]]:
    """Find every attribute of mlx-lm's loaded modules that is this very object."""
    for module_name, module in list(sys.modules.items()):
        if module_name == ENGINE or module_name.startswith(f"{ENGINE}."):
            for name, held in list(getattr(module, "__dict__", {}).items()):
                if held is value:
                    yield module, name
