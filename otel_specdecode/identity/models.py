"""What a loaded model is: plain facts, the same for both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Setting = tuple[str, str | int | float | bool]
"""The name and value of something that was chosen at load, such as the context length."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells one model's weights from another's.

    Attributes:
        kind: `sha256`: of the whole content, as a hub cache has it. `sampled`: of the header, the size and samples of
            the weights, which is not the content's sha256.
        value: 64 hex digits. Of several files, the sha256 of theirs.
    """

    kind: Literal["sha256", "sampled"]
    value: str


@dataclass(frozen=True, slots=True)
class TokenizerIdentity:
    """A tokenizer; each fact is None where it is not told.

    Attributes:
        kind: Its algorithm or class, such as `gpt2` or `BPE`.
        pre: The rules that split text before it, where they have a name, such as `qwen2`.
        vocabulary_size: Tokens that it knows, without those added for a fine-tune.
        vocabulary_sha256: Of those tokens in the order of their ids; of two tokenizers of one size it tells whether an
            id means the same to both. Comparable within one engine only.
        content_sha256: Of the file that defines it.
    """

    kind: str | None = None
    pre: str | None = None
    vocabulary_size: int | None = None
    vocabulary_sha256: str | None = None
    content_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """A model as it was loaded; each fact is None where it is not told. Never a path.

    Attributes:
        name: The name a caller knows it by.
        fingerprint: Of its weights.
        adapter: Fingerprint of the adapter that was loaded on top (LoRA).
        architecture: As the model's files name it, such as `llama`.
        quantization: How the weights are stored: `4 bits, group 64`, `bfloat16`, `MOSTLY_Q4_K_M`.
        parameters: Number of weights.
        size_bytes: Bytes of all tensors.
        tokenizer: Its tokenizer.
        chat_template_sha256: Of its chat template's text in UTF-8.
        settings: What else was chosen at load and changes how it runs, sorted by name.
    """

    name: str | None = None
    fingerprint: Fingerprint | None = None
    adapter: Fingerprint | None = None
    architecture: str | None = None
    quantization: str | None = None
    parameters: int | None = None
    size_bytes: int | None = None
    tokenizer: TokenizerIdentity = field(default_factory=TokenizerIdentity)
    chat_template_sha256: str | None = None
    settings: tuple[Setting, ...] = ()


class LoadedModel:
    """A model in memory and what it is. Holds nothing of the engine's, so it may outlive the model.

    What needs its files is read when somebody asks for the first time, on that thread, and kept.
    """

    __slots__ = ("__weakref__", "_complete", "_identity", "_reading")

    def __init__(self, known: ModelIdentity, complete: Callable[[ModelIdentity], ModelIdentity] | None = None) -> None:
        """Begin with what the engine told.

        Args:
            known: The facts that need no file.
            complete: Adds those that do; None if there are none. What it raises leaves the facts as they are.
        """
        self._identity = known
        self._complete = complete
        self._reading = threading.Lock()

    @property
    def name(self) -> str | None:
        """The name a caller knows it by. Reads nothing."""
        return self._identity.name

    def identity(self) -> ModelIdentity:
        """Return all facts. The first call reads some MB of files and can take as long as those take to be read."""
        with self._reading:
            complete, self._complete = self._complete, None
            if complete is not None:
                try:
                    self._identity = complete(self._identity)
                except Exception:
                    return self._identity
            return self._identity
