"""What the demo needs before it can begin, told in one sentence if it is not there."""

from __future__ import annotations

import importlib.util
import os

from otel_specdecode.demo.engines import ENGINES
from otel_specdecode.demo.engines.interface import Engine

INSTALL = 'pip install "otel-specdecode[demo]"'

_PACKAGES = {
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.common": "opentelemetry-exporter-otlp",
    "bokeh": "bokeh",
    "gguf": "gguf",
    "jinja2": "jinja2",
    "numpy": "numpy",
    "rich": "rich",
    "safetensors": "safetensors",
}


class DemoError(Exception):
    """The demo cannot go on; the text says why, and what to do."""


def check_packages() -> None:
    """Raise DemoError where a package that every engine needs is missing, or the SDK is switched off."""
    missing = [package for module, package in _PACKAGES.items() if not _is_installed(module)]
    if missing:
        raise DemoError(f"the demo needs {', '.join(missing)}: {INSTALL}")
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise DemoError("OTEL_SDK_DISABLED is true, so there would be nothing to show; unset it")


def choose(name: str | None) -> list[Engine]:
    """Return the engine of a name, or without one all that are installed, in the order in which they are shown.

    Raises:
        DemoError: If there is none, or one of them is installed but does not start.
    """
    if name is None:
        chosen = [engine for engine in ENGINES if not _missing(engine)]
        if not chosen:
            ways = ", or ".join(f"{engine.title}: {engine.install}" for engine in ENGINES)
            raise DemoError(f"the demo needs an engine. {ways}")
    else:
        chosen = [engine for engine in ENGINES if engine.name == name]
        if not chosen:
            names = ", ".join(engine.name for engine in ENGINES)
            raise DemoError(f"the demo has no engine {name!r}; it runs on: {names}")
    for engine in chosen:
        _check(engine)
    return chosen


def _check(engine: Engine) -> None:
    missing = _missing(engine)
    if missing:
        raise DemoError(f"the demo on {engine.title} needs {', '.join(missing)}: {engine.install}")
    try:
        importlib.import_module(engine.probe)
    except (ImportError, OSError, RuntimeError) as error:  # a library that does not load is told by any of them
        raise DemoError(f"{engine.title} is installed but does not start ({error}): {engine.install}") from error


def _missing(engine: Engine) -> list[str]:
    return [package for module, package in engine.packages.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
