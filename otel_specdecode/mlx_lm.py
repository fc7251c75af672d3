"""Drop-in for mlx_lm: `from otel_specdecode.mlx_lm import load, generate, stream_generate, batch_generate`.

Everything else that mlx_lm offers at top level can be imported from here as well.
"""

from __future__ import annotations

import otel_specdecode

otel_specdecode.instrument()

from mlx_lm import *  # noqa: E402, F403
from mlx_lm import batch_generate, generate, load, stream_generate  # noqa: E402

__all__ = ["batch_generate", "generate", "load", "stream_generate"]
