"""Prompts as tokens, made once so that every arm gets the same ones, and answers up to where they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt


class PromptTokens:
    """The tokens of each prompt, kept by its id. Any thread may ask."""

    def __init__(self, model: str, encode: Callable[[Prompt], list[int]], context: int | None) -> None:
        """Begin with none.

        Args:
            model: What the model is called in messages.
            encode: Makes the tokens of a prompt. Whatever it raises means that the model does not take that prompt.
            context: Tokens that fit the model's context; None if it does not tell.
        """
        self._model = model
        self._encode = encode
        self._context = context
        self._known: dict[str, tuple[Prompt, list[int]]] = {}
        self._encoding = threading.Lock()  # not every tokenizer may be called from two threads at once

    def of(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt.

        Raises:
            AcceptanceError: The model does not take it, or it does not fit the context with its answer.
        """
        with self._encoding:
            known = self._known.get(prompt.id)
            if known is None or known[0] != prompt:
                known = self._known[prompt.id] = (prompt, self._checked(prompt))
            return list(known[1])

    def _checked(self, prompt: Prompt) -> list[int]:
        try:
            tokens = self._encode(prompt)
        except AcceptanceError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise AcceptanceError(f"{self._model} does not take prompt {prompt.id!r} ({said}).") from error
        if not tokens:
            raise AcceptanceError(f"prompt {prompt.id!r} has no token.")
        if self._context is not None and len(tokens) + prompt.max_tokens > self._context:
            raise AcceptanceError(
                f"prompt {prompt.id!r} does not fit: {len(tokens)} tokens and max_tokens {prompt.max_tokens} are "
                f"{len(tokens) + prompt.max_tokens}, and the context of {self._model} has {self._context}."
            )
        return tokens


def until(pieces: Iterable[str], stops: Sequence[str]) -> Generator[str, None, None]:
    """Yield pieces of text up to the first of some stop texts, which is no part of the answer.

    What may turn out to be the beginning of a stop text is held back until that is known, so that a piece may come out
    shorter or empty. Without stop texts the pieces are left as they are.
    """
    held = ""
    for piece in pieces:
        held += piece
        ends = [place for place in map(held.find, stops) if place >= 0]
        if ends:
            yield held[: min(ends)]
            return
        known = len(held) - max((_begun(held, stop) for stop in stops), default=0)
        yield held[:known]
        held = held[known:]
    if held:
        yield held


def _begun(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop text."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
