"""What the demo needs before it can begin, told in one sentence if it is not there."""

from __future__ import annotations

import importlib.util
import os

ENGINES = ("mlx",)
"""Engines the demo runs on."""

INSTALL = 'pip install "otel-specdecode[demo]"'

_PACKAGES = {
    "mlx_lm": "mlx-lm",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.common": "opentelemetry-exporter-otlp",
    "bokeh": "bokeh",
    "jinja2": "jinja2",
    "rich": "rich",
}


class DemoError(Exception):
    """The demo cannot go on; the text says why, and what to do."""


def check_engine(engine: str) -> None:
    """Raise DemoError for an engine that the demo does not run on."""
    if engine not in ENGINES:
        raise DemoError(f"the demo has no engine {engine!r}; it runs on: {', '.join(ENGINES)} ({INSTALL})")


def check_packages() -> None:
    """Raise DemoError where a package is missing or the SDK is switched off."""
    missing = [package for module, package in _PACKAGES.items() if not _is_installed(module)]
    if missing:
        raise DemoError(f"the demo needs {', '.join(missing)}: {INSTALL}")
    try:
        import mlx.core  # noqa: F401
    except ImportError as error:
        raise DemoError(f"MLX is installed but does not start ({error}): {INSTALL}") from error
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise DemoError("OTEL_SDK_DISABLED is true, so there would be nothing to show; unset it")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
