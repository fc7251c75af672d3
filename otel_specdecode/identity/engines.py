"""Which engine is installed here, without importing it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

_PACKAGES: dict[str, tuple[str, str | None]] = {"mlx": ("mlx-lm", "mlx"), "llama_cpp": ("llama-cpp-python", None)}


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """An engine's packages; a version is None where the package is not installed.

    Attributes:
        provider: The engine's GenAI provider name, `mlx` or `llama_cpp`.
        name: Its Python package.
        version: That package's version.
        runtime: The package that it runs on; None where that is built into it.
        runtime_version: That package's version.
    """

    provider: str
    name: str | None = None
    version: str | None = None
    runtime: str | None = None
    runtime_version: str | None = None


@functools.lru_cache(maxsize=16)
def engine_identity(provider: str) -> EngineIdentity:
    """Return the packages behind a provider name; of one that is not known, the name alone. Looked up once."""
    if provider not in _PACKAGES:
        return EngineIdentity(provider)
    name, runtime = _PACKAGES[provider]
    return EngineIdentity(provider, name, _version(name), runtime, None if runtime is None else _version(runtime))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
