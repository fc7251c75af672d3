"""What the demo asks of an engine: load a target, put its words into tokens, generate with it alone or with a draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

ModelChoice = Literal["tiny", "smollm2"]

DRAFT_LENGTH = 4
"""k of every speculative mode."""

Generate = Callable[[Sequence[int], int], str]
"""Makes one greedy request of a prompt's tokens and the most tokens to emit; returns the emitted text."""


@dataclass(frozen=True)
class Mode:
    """One column: the target alone or with one draft.

    Attributes:
        name: Short name in tables and plots.
        about: What it is, as one sentence.
        generate: Makes its requests.
    """

    name: str
    about: str
    generate: Generate


class Target(Protocol):
    """A loaded target.

    Attributes:
        note: What to know about how its requests are made.
    """

    note: str

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text, control tokens in it as such and none added."""

    def alone(self) -> Generate:
        """Return the autoregressive baseline, as a program without speculation would have it."""

    def with_draft(self, source: Path) -> Generate:
        """Return the target with a draft model, loaded from where a target is loaded from."""

    def poor_draft(self, model: ModelChoice, seed: int) -> Mode:
        """Return the target with a draft that is mostly wrong: what the engine has for showing that this hurts."""


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
        name: As `--engine` takes it, and as its spans have it in `gen_ai.provider.name`.
        title: As people call it.
        packages: What has to be installed: distributions by the module they are found by.
        probe: A module that can be imported only if the engine really starts.
        extras: The extras of this package that bring it.
        load: Loads a target, from a folder as mlx-lm reads it or from a GGUF file; what the engine cannot read is
            converted into the scratch folder given beside it.
    """

    name: str
    title: str
    packages: Mapping[str, str]
    probe: str
    extras: str
    load: Callable[[Path, Path], Target]

    @property
    def install(self) -> str:
        """The command that installs what the engine needs."""
        return f'pip install "otel-specdecode[{self.extras}]"'
