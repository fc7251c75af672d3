"""A tiny trained target with three drafts, small enough to ship, real enough to speculate with.

Tests, the demo, guards and sweeps need a pair of models that both engines run, offline, in seconds. `models/` holds
four llama-architecture folders (2.5 MB in all) trained on a seeded grammar of stories, facts, lists, counting,
repetition and code; `models/MODEL_CARD.md` says how, and what was measured. Around them:

- `cycle`: an untrained pair whose every token, and every accepted token, is known beforehand;
- `dial`: drafts of a chosen accept rate and slower targets, derived from a trained folder;
- `gguf`: the same folders for llama.cpp;
- `smollm2`: a larger real model (135 M parameters) out of a Python package;
- `training`: how the shipped weights were made.

Importing this module imports no engine and no NumPy. The modules above need NumPy, safetensors and tokenizers, which
come with the `[mlx]` extra; `gguf` needs the package of that name, which comes with `[demo]`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

__all__ = ["MODEL_NAMES", "PROMPTS", "ModelName", "chat_tokens", "model_path"]

ModelName = Literal["target", "draft", "draft-kd", "draft-weak"]

MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)
"""The shipped folders: the target, a draft trained on text, one distilled from the target, one trained too briefly."""

PROMPTS: tuple[str, ...] = (
    "Tell me a story about a fox.",
    "Tell me a story about a hen and a wolf.",
    "Tell me a story about Nora the mouse.",
    "What is a crab?",
    "Explain what an owl is.",
    "List 5 animals.",
    "Count from 7 to 22.",
    "Write a function scale_rows in Python.",
    "Write a function find_names in Python.",
    "Repeat this: Then a kind goat named Otto came along.",
    "Repeat this: Gus and Tess decided to share the silver key. Tess was very calm, and Gus was glad too.",
    "Why is the sky blue?",
)
"""The twelve prompts of the model card's table: one or more of each kind in the grammar, and the last outside of it."""


def model_path(name: ModelName) -> Path:
    """The folder of one shipped model, as `mlx_lm.load` takes it.

    Raises `ValueError` for a name that is not shipped and `RuntimeError` where the package is not installed as plain
    files (engines map weights from disk, so a zip import cannot serve them).
    """
    if name not in MODEL_NAMES:
        raise ValueError(f"no model {name!r} is shipped; the names are {', '.join(MODEL_NAMES)}")
    folder = files(__name__) / "models" / name
    if not isinstance(folder, Path):
        raise RuntimeError(f"{folder} is not a folder on disk: install otel-specdecode unzipped")
    if not (folder / "model.safetensors").is_file():
        raise RuntimeError(f"{folder} holds no model.safetensors: the installation left the weights out")
    return folder


def chat_tokens(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a chat prompt: `text` as the user's turn, then the opening of the assistant's.

    `tokenizer` is what `mlx_lm.load` returns beside the model.
    """
    messages = [{"role": "user", "content": text}]
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))
