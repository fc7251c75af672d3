"""What a loaded model is: plain facts, the same for both engines."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

THREAD_NAME = "otel-specdecode-identity"

_MOST_TRIES = 3

Setting = tuple[str, str | int | float | bool]
"""The name and value of something that was chosen at load, such as the context length."""

_Fact = TypeVar("_Fact")


def told(read: Callable[[], _Fact]) -> _Fact | None:
    """Return what a reading tells; None where it fails, which leaves the other facts."""
    try:
        return read()
    except Exception:
        return None


@dataclass(frozen=True, slots=True)
class TokenizerIdentity:
    """A tokenizer; each fact is None where it is not told.

    Attributes:
        kind: Its algorithm or class, such as `gpt2` or `BPE`.
        pre: The rules that split text before it, where they have a name, such as `qwen2`.
        vocabulary_size: Tokens that it knows, without those added for a fine-tune.
        vocabulary_sha256: Of those tokens in the order of their ids; of two tokenizers of one size it tells whether an
            id means the same to both. Comparable within one engine only. A GGUF file's covers all tokens from
            FIRST_COMPARED_ID on. MLX's covers all of up to 4,096 tokens, and of more 4,096 that are spread evenly over
            the ids, so that it misses a difference that lies between those.
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
        fingerprint: What tells its weights from another model's, in 64 hex digits: a sha256 of the header, the size and
            samples of the weights, wherever those lie. It is not the content's sha256.
        content_sha256: Of the whole content, where the model lies in a hub cache, which has it. Of several files, over
            theirs.
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
    fingerprint: str | None = None
    content_sha256: str | None = None
    adapter: str | None = None
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

    __slots__ = ("__weakref__", "_complete", "_identity", "_tries")

    def __init__(self, known: ModelIdentity, complete: Callable[[ModelIdentity], ModelIdentity] | None = None) -> None:
        """Begin with what the engine told.

        Args:
            known: The facts that need no file.
            complete: Adds those that do; None if there are none. What it raises leaves the facts as they are.
        """
        self._identity = known
        self._complete = complete
        self._tries = _MOST_TRIES

    @property
    def name(self) -> str | None:
        """The name a caller knows it by. Reads nothing."""
        return self._identity.name

    def identity(self) -> ModelIdentity:
        """Return all facts. The first call reads some MB of files and can take as long as those take to be read.

        Takes no lock meanwhile, which the child of a fork would inherit: two threads that ask at once both read.
        Files that cannot be read are tried again when somebody asks again, a few times.
        """
        complete = self._complete
        if complete is not None:
            try:
                self._identity = complete(self._identity)
                self._complete = None
            except Exception:
                self._tries -= 1
                if self._tries <= 0:
                    self._complete = None
        return self._identity

    def read_soon(self) -> None:
        """Have the files read on a thread of their own, so that nobody waits for them; at most once."""
        if self._complete is None or self._tries != _MOST_TRIES:
            return
        with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter is ending
            threading.Thread(target=self.identity, name=THREAD_NAME, daemon=True).start()
