"""Drop-in for llama_cpp: `from otel_specdecode.llama_cpp import Llama`.

Everything else that llama_cpp offers at top level can be imported from here as well, and `ModelDraft`, a draft that
runs a second GGUF model.
"""

from __future__ import annotations

import otel_specdecode

otel_specdecode.instrument()

from llama_cpp import *  # noqa: E402, F403
from llama_cpp import Llama  # noqa: E402

from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft  # noqa: E402

__all__ = ["Llama", "ModelDraft"]
