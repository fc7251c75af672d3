"""What a run asks of an engine; the rest of this room knows none."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.identity.manifest import Pair


@dataclass(frozen=True, slots=True)
class Models:
    """What to load.

    Attributes:
        target: A folder, a GGUF file, or a repository in the local hub cache; `tiny` is the target of the tiny pair.
        drafts: Drafts by label, each from where a target comes from; `tiny:draft-kd` and its like are those of the tiny
            pair, `prompt-lookup` is the draft that llama-cpp-python brings. The label of the only one is empty.
        options: Options of the engine that are set for target and draft alike, such as `n_ctx`.
        seed: Of the sampling.
        stop: Texts that end an answer, and are no part of it.
        threads: Requests at once that there may be.
    """

    target: str
    drafts: Mapping[str, str]
    options: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    seed: int = 0
    stop: tuple[str, ...] = ()
    threads: int = 1


class Session(Protocol):
    """Loaded models. `stream` may be called from `threads` threads at once, each with a number of its own from 0 on."""

    def count(self, prompt: Prompt) -> int:
        """Return how many tokens a prompt has.

        Raises:
            AcceptanceError: The model has no chat template for messages, or the prompt does not fit its context.
        """

    def stream(self, arm: Arm, prompt: Prompt, seed: int, thread: int) -> Generator[str, None, None]:
        """Make one request and yield its pieces of text as the engine does; nothing is kept from the request before.

        It begins when the first piece is asked for. A piece may be empty: a token of which no text is known yet.
        Raises whatever the engine raises.
        """

    def queued(self, thread: int) -> float | None:
        """Return the seconds that a thread's last request waited for others; None where requests never do."""

    def pair(self, arm: Arm) -> Pair:
        """Return what an arm runs on, for the manifest.

        Raises:
            AcceptanceError: The arm cannot be run: it names a draft that was not given, or drafts too many tokens.
        """

    def engine_peak(self, thread: int) -> int | None:
        """Return the highest memory of the engine's allocator in a thread's last request, in bytes.

        None where the engine does not tell.
        """

    def close(self) -> None:
        """Let go of the models."""


BeforeDrafts = Callable[[Session], None]
"""Is called with a session that has its target and no draft yet: what it takes alone can be seen then alone."""


class Loads(Protocol):
    """Loads models."""

    def __call__(self, models: Models, before_drafts: BeforeDrafts | None = None, /) -> Session:
        """Return them, loaded.

        Raises:
            AcceptanceError: One is missing, or cannot be used; the text says what to do.
        """


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
        name: As `--engine` takes it, and as spans have it.
        title: As people call it.
        module: What is imported to see whether it is there.
        extras: The extras of this package that bring it, with what a run needs besides.
        load: Loads models.
    """

    name: str
    title: str
    module: str
    extras: str
    load: Loads

    def start(self) -> None:
        """Import the engine.

        Raises:
            AcceptanceError: It is not installed, or does not start.
        """
        install = f'pip install "otel-specdecode[{self.extras}]"'
        try:
            importlib.import_module(self.module)
        except (ImportError, OSError, RuntimeError) as error:  # a library that does not load is told by any of them
            if isinstance(error, ModuleNotFoundError) and error.name == self.module:
                raise AcceptanceError(f"{self.title} is not installed: {install}") from error
            raise AcceptanceError(f"{self.title} is installed but does not start ({error}): {install}") from error


def lengths(session: Session, prompts: Sequence[Prompt]) -> dict[str, int]:
    """Return the tokens of each prompt by its id.

    Raises:
        AcceptanceError: As Session.count().
    """
    return {prompt.id: session.count(prompt) for prompt in prompts}
