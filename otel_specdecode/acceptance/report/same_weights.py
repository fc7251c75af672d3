"""Whether the runs of two engines ran the same weights: a GGUF file and an MLX folder have no digest in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from otel_specdecode.acceptance.records import Measured, Run

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODEL = (
    ("architecture", "architecture", False),
    ("parameters", "number of weights", True),
    ("quantization", "quantisation", False),
    ("chat_template_sha256", "chat template", True),
    ("tokenizer.vocabulary_size", "size of the vocabulary", False),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is equal where the weights are, or that a reader has to know where it is not.

    Attributes:
        what: It.
        same: Whether it is equal; None where one of the engines does not tell.
        told: What both say.
        must: Whether the weights, or what they were asked, are others where it differs. Engines name architectures in
            their own words, count padding in a vocabulary or not, and store weights in ways that only they have.
    """

    what: str
    same: bool | None
    told: str
    must: bool


def facts(one: Run, other: Run) -> tuple[Fact, ...]:
    """Return what two runs tell of it, of models first, then of what was measured."""
    left, right = one.head.manifest.get("target"), other.head.manifest.get("target")
    return (
        *(_fact(f"target: {what}", _leaf(left, key), _leaf(right, key), must) for key, what, must in _MODEL),
        _drafts(one, other),
        _fact("seed", _leaf(one.head.manifest, "sampling.seed"), _leaf(other.head.manifest, "sampling.seed"), False),
        _fact("stop texts", one.head.manifest.get("stop"), other.head.manifest.get("stop"), True),
        _fact("digest of the prompts", one.head.manifest.get("prompts"), other.head.manifest.get("prompts"), False),
        _fact(
            "machine", _leaf(one.head.manifest, "machine.profile"), _leaf(other.head.manifest, "machine.profile"), False
        ),
        _tokens(one, other),
        _answers(one, other),
    )


def _drafts(one: Run, other: Run) -> Fact:
    counts = [
        sorted(
            str(_leaf(draft, "model.parameters") or "?") for draft in _mapping(run.head.manifest.get("drafts")).values()
        )
        for run in (one, other)
    ]
    unknown = not counts[0] or not counts[1] or any("?" in each for each in counts)
    return _fact("drafts: number of weights", None if unknown else counts[0], None if unknown else counts[1], True)


def _tokens(one: Run, other: Run) -> Fact:
    """Return whether both engines count the same tokens in each prompt, which takes one tokenizer and one template."""
    left, right = ({each.prompt: each.input_tokens for each in run.measured} for run in (one, other))
    both = [name for name in left if name in right and None not in (left[name], right[name])]
    same = sum(left[name] == right[name] for name in both)
    told = f"{same} of {len(both)} prompts have as many tokens in both" if both else "no prompt is in both"
    return Fact("tokens of each prompt", same == len(both) if both else None, told, must=False)


def _answers(one: Run, other: Run) -> Fact:
    """Return how many greedy answers without a draft are the same: of the same weights at one precision, most are."""
    left, right = (_greedy(run) for run in (one, other))
    both = left.keys() & right.keys()
    same = sum(left[key] == right[key] for key in both)
    told = f"{same} of {len(both)} greedy answers without a draft are the same" if both else "none to compare"
    return Fact("greedy answers", same == len(both) if both else None, told, must=False)


def _greedy(run: Run) -> dict[tuple[str, int], str]:
    plain = {arm.name for arm in run.head.arms if not arm.speculative and not arm.temperature and arm.concurrency == 1}
    chosen: list[Measured] = [each for each in run.measured if each.arm in plain]
    return {(each.prompt, each.repeat): each.text_digest for each in chosen if each.text_digest is not None}


def _fact(what: str, one: object, other: object, must: bool) -> Fact:
    known = one is not None and other is not None
    return Fact(what, one == other if known else None, f"{_shown(one)}, and {_shown(other)}", must)


def _leaf(document: object, place: str) -> object:
    for key in place.split("."):
        document = _mapping(document).get(key)
    return document


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value)) or "none"
    text = "not told" if value is None else str(value)
    if _DIGEST.fullmatch(text):
        return f"{text[:16]}..."
    return text if len(text) <= 60 else f"{text[:57]}..."
