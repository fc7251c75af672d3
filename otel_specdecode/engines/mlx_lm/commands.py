"""Commands of MLX-LM whose code does not run as the module that is watched."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from otel_specdecode.generation.faults import warn_once

_OPTIONS_WITH_VALUE = frozenset(("-W", "-X"))

WHAT_IS_MISSING = {
    "mlx_lm.server": (
        "`python -m mlx_lm.server` runs the server's code as `__main__`, where its HTTP side is not watched: no spans"
        " of HTTP requests, no trace context of clients, no queue time, and nothing at all of requests that it batches;"
        " start it with `mlx_lm.server` or `python -m mlx_lm server`"
    ),
    "mlx_lm.generate": (
        "`python -m mlx_lm.generate` runs its code as `__main__`, where it is not watched: nothing is recorded; start"
        " it with `mlx_lm.generate` or `python -m mlx_lm generate`"
    ),
}
"""By the module that `python -m` is given."""


def warn_of_main_module() -> None:
    """Say once what is missing where this process runs one of MLX-LM's modules as `__main__`."""
    missing = WHAT_IS_MISSING.get(main_module(sys.orig_argv) or "")
    if missing is not None:
        warn_once(missing)


def main_module(command: Sequence[str]) -> str | None:
    """Return the module that a command line of Python runs by `-m`, None if it runs something else."""
    words = iter(command[1:])
    for word in words:
        if word in _OPTIONS_WITH_VALUE:
            next(words, None)
        elif not word.startswith("-") or word == "-":
            return None
        elif not word.startswith(("-W", "-X", "--")):
            flags, ends, rest = word[1:].partition("m")
            if "c" in flags:
                return None
            if ends:
                return rest or next(words, None)
    return None
