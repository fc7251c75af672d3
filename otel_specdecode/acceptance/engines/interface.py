"""What a run asks of an engine; the rest of this room knows none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.identity.manifest import Pair


@dataclass(frozen=True, slots=True)
class Models:
    """What to load.

    Attributes:
        target: A folder, a GGUF file, or a repository in the local hub cache.
        drafts: Drafts by label, each from where a target comes from. The label of the only one is empty.
        options: Options of the engine that are set for target and draft alike, such as `n_ctx`.
        seed: Of the sampling.
        stop: Texts that end an answer.
        threads: Requests at once that there may be.
    """

    target: str
    drafts: Mapping[str, str]
    options: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    seed: int = 0
    stop: tuple[str, ...] = ()
    threads: int = 1


class Session(Protocol):
    """Loaded models. `stream` may be called from `threads` threads at once, each with a number of its own."""

    def count(self, prompt: Prompt) -> int:
        """Return how many tokens a prompt has.

        Raises:
            AcceptanceError: The model has no chat template for messages, or the prompt does not fit its context.
        """

    def stream(self, arm: Arm, prompt: Prompt, seed: int, thread: int) -> Iterator[str]:
        """Make one request and yield its pieces of text as the engine does; nothing is kept from the request before.

        Raises whatever the engine raises.
        """

    def pair(self, arm: Arm) -> Pair:
        """Return what an arm runs on, for the manifest."""

    def engine_peak(self) -> int | None:
        """Return the highest memory of the engine's allocator in bytes, None where it does not tell."""

    def close(self) -> None:
        """Let go of the models."""


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
        name: As `--engine` takes it, and as spans have it.
        title: As people call it.
        module: What is imported to see whether it is there.
        extras: The extras of this package that bring it.
        load: Loads models. Raises AcceptanceError with what to do where one is missing or cannot be used.
    """

    name: str
    title: str
    module: str
    extras: str
    load: Callable[[Models], Session]


def lengths(session: Session, prompts: Sequence[Prompt]) -> dict[str, int]:
    """Return the tokens of each prompt by its id.

    Raises:
        AcceptanceError: As Session.count().
    """
    return {prompt.id: session.count(prompt) for prompt in prompts}
