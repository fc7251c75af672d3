"""Lineups and results made by hand, for tests in which no engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_specdecode.demo.capture import Recorded, Taken
from otel_specdecode.demo.engines import llama_cpp, mlx
from otel_specdecode.demo.engines.interface import Engine, Mode
from otel_specdecode.demo.lineups import Lineup, Prompt
from otel_specdecode.demo.measures import verdicts
from otel_specdecode.demo.results import Result
from otel_specdecode.demo.runs import Run
from otel_specdecode.telemetry.names import Attr

MLX, LLAMA_CPP = mlx.ENGINE, llama_cpp.ENGINE


def silent(prompt: Sequence[int], tokens: int) -> str:
    """Generates nothing."""
    return ""


def made_lineup(
    *,
    engine: Engine = MLX,
    drafts: Sequence[str] = ("draft",),
    prompts: Sequence[str] = ("a prompt",),
    **more: Any,
) -> Lineup:
    return Lineup(
        engine=engine,
        about="a model",
        note="By hand.",
        baseline=Mode("autoregressive", "alone", silent),
        drafts=tuple(Mode(name, "small", silent) for name in drafts),
        prompts=tuple(Prompt(text, []) for text in prompts),
        tokens=8,
        **more,
    )


def made_result(lineup: Lineup, *, text: str = "same", baseline_text: str = "same", **attributes: Any) -> Result:
    """A result whose every span has these attributes beside its mode, and no duration."""
    runs = []
    for prompt in range(len(lineup.prompts)):
        for draft in lineup.drafts:
            pair = len(runs)
            for mode, way, said in (
                (lineup.baseline, "autoregressive", baseline_text),
                (draft, "speculative", text),
            ):
                taken = Taken({Attr.SPECDECODE_MODE: way, **attributes}, 1, 2, Recorded(), {})
                runs.append(Run(mode.name, prompt, pair, said, taken))
    return Result(lineup, runs, verdicts(lineup, runs, seed=1))
