"""Applies a plan to a call of MLX-LM: whether its draft takes part, how far it proposes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_specdecode.engines.arguments import Arguments
from otel_specdecode.generation.plan import Plan

Args = tuple[Any, ...]


class TargetPart(list[Any]):
    """The target's layers of a prompt cache that holds the draft's too; what is set here is set there.

    mlx-lm takes any list for a cache of one model, and replaces layers in it as it quantises them.
    """

    def __init__(self, whole: list[Any], layers: int) -> None:
        """Take the first layers of a cache."""
        super().__init__(whole[:layers])
        self._whole = whole

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set a layer, or some."""
        super().__setitem__(key, value)
        self._whole[: len(self)] = self


def apply(
    plan: Plan, asked: int | None, arguments: Arguments, args: Args, kwargs: Mapping[str, Any]
) -> tuple[Args, Mapping[str, Any]]:
    """Return the arguments of `stream_generate` as a plan has them.

    Args:
        plan: How the request is to run.
        asked: The draft length that it asks for; 0 without a draft.
        arguments: Parameters of `stream_generate`.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    model, draft, cache = (arguments.get(name, args, kwargs) for name in ("model", "draft_model", "prompt_cache"))
    both = isinstance(cache, list) and len(cache) > len(model.layers)
    if plan.autoregressive:
        args, kwargs = arguments.with_value("draft_model", None, args, kwargs)
        # Also where a program that asked for the plan left the draft away itself: its cache may have both parts.
        return (args, {**kwargs, "prompt_cache": TargetPart(cache, len(model.layers))}) if both else (args, kwargs)
    if asked == 0:
        return args, kwargs
    if both:
        _renew_draft_part(cache, len(model.layers), draft)
    length = plan.length(asked)
    return (args, kwargs) if length == asked else arguments.with_value("num_draft_tokens", length, args, kwargs)


def _renew_draft_part(cache: list[Any], layers: int, draft: Any) -> None:
    """Let the draft begin anew where it missed what the target did without it.

    Its layers then lack tokens that the target's have, and the next ones would stand at wrong places. After a
    speculative run they are one token short at most. They stay what their program made them, where they can be emptied.
    """
    own = cache[layers:]
    has, misses = _offset(own), _offset(cache[:layers]) - 1
    if 0 < has < misses:
        from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

        emptied: Any = trim_prompt_cache(own, has)  # how many tokens it took away
        if emptied != has:
            cache[layers:] = make_prompt_cache(draft)


def _offset(layers: Sequence[Any]) -> int:
    found = (getattr(layer, "offset", None) for layer in layers)
    return max((each for each in found if isinstance(each, int)), default=0)
