"""Two runs held against each other: the ratio that the worlds have, and a refusal where they are not comparable."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from rich.console import Console

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.records import Note, Run
from otel_specdecode.acceptance.report.compare import compare
from otel_specdecode.acceptance.report.compared import as_json, as_markdown, show
from tests.acceptance.fakes import MANIFEST, arms, fake_run, prompts
from tests.acceptance.report.cases import HOSTILE, WORLD, changed

MLX = {
    **MANIFEST,
    "engine": {"provider": "mlx", "version": "0.31"},
    "target": {"parameters": 1000, "quantization": "4 bits, group 64", "chat_template_sha256": "c" * 64},
    "drafts": {"draft": {"model": {"parameters": 100}}},
    "stop": [],
    "prompts": "p" * 64,
}
LLAMA = {**MLX, "engine": {"provider": "llama_cpp"}, "target": {**MLX["target"], "quantization": "MOSTLY_Q4_K_M"}}


@cache
def run(step: float = 0.026, name: str = "one", lengths: tuple[int, ...] = (4,)) -> Run:
    made = fake_run(arms(lengths), prompts(20, checked=True), replace(WORLD, step=step))
    return named(made, name)


def named(made: Run, name: str, **head: Any) -> Run:
    return replace(made, head=replace(made.head, run_id=name, **head))


def of(target: dict[str, Any], draft: int = 100) -> dict[str, Any]:
    return {**LLAMA, "target": {**LLAMA["target"], **target}, "drafts": {"draft": {"model": {"parameters": draft}}}}


def test_a_machine_that_is_half_as_fast_decodes_at_half_the_speed() -> None:
    plain, drafted = compare(run(), run(0.052, "slow")).arms
    assert plain.prompts == drafted.prompts == 20
    assert plain.speed.value == pytest.approx(0.5, rel=0.02)
    assert plain.speed.low < 0.5 < plain.speed.high or plain.speed.high - plain.speed.low < 0.02
    assert drafted.speed.value == pytest.approx((0.026 + 4 * 0.004) / (0.052 + 4 * 0.004), rel=0.05)
    assert drafted.other_speed_up.value > drafted.one_speed_up.value
    assert plain.time_to_first_token.value == pytest.approx(1, rel=0.05)
    assert plain.memory == 1
    assert plain.success.value == 0


def test_a_task_counts_once_however_often_it_ran() -> None:
    one = fake_run(arms([4]), prompts(20, checked=True), replace(WORLD, success=1.0), repeats=3)
    other = changed(one, lambda each: replace(each, check=each.prompt != "short-1"))
    found = compare(one, other).arms[0].success

    assert (found.value, found.samples) == (pytest.approx(-0.05), 20)


def test_the_same_run_twice_is_one_with_an_interval_of_no_width() -> None:
    for arm in compare(run(), run()).arms:
        assert (arm.speed.value, arm.speed.low, arm.speed.high) == pytest.approx((1, 1, 1))


def test_turned_around_the_ratio_is_its_reciprocal() -> None:
    forth, back = compare(run(), run(0.052)).arms[1], compare(run(0.052), run()).arms[1]
    assert forth.speed.value * back.speed.value == pytest.approx(1)


def test_prompts_are_paired_by_id_in_whatever_order_they_ran() -> None:
    shuffled = list(run(0.052).results)
    random.Random(1).shuffle(shuffled)
    found = compare(run(), replace(run(0.052), results=tuple(shuffled)))
    for one, other in zip(found.arms, compare(run(), run(0.052)).arms, strict=True):
        assert (one.speed, one.emitted, one.time_to_first_token) == (
            other.speed,
            other.emitted,
            other.time_to_first_token,
        )


def test_a_prompt_that_only_one_run_has_does_not_count() -> None:
    fewer = tuple(each for each in run(0.052).results if each.prompt != "short-3")
    assert [arm.prompts for arm in compare(run(), replace(run(0.052), results=fewer)).arms] == [19, 19]


def test_a_prompt_whose_text_changed_does_not_count_and_is_named() -> None:
    other = named(
        run(), "two", prompts=tuple({**each, "digest": "x"} for each in run().head.prompts[:1]) + run().head.prompts[1:]
    )
    found = compare(run(), other)
    assert [arm.prompts for arm in found.arms] == [19, 19]
    assert found.left_out == ("Prompt short-0: its text is another one in the other run.",)


def test_arms_of_one_run_alone_are_named() -> None:
    found = compare(run(lengths=(2, 4)), run())
    assert [arm.arm.name for arm in found.arms] == ["ar", "k=4"]
    assert found.left_out == ("Arm k=2: only one of the runs has it.",)


def test_runs_of_different_manifests_are_refused_with_what_differs() -> None:
    other = named(run(), "two", manifest={**MANIFEST, "id": "f" * 16, "machine": {"profile": "fake", "memory": 64}})
    with pytest.raises(
        AcceptanceError, match=r"different manifests.*--anyway(.|\n)*machine.memory: 34359738368, and 64"
    ):
        compare(run(), other)
    found = compare(run(), other, anyway=True)
    assert found.differences == ("machine.memory: 34359738368, and 64",)
    assert "machine.memory" in as_markdown(found)


def test_a_run_that_was_gone_on_with_something_else_is_refused_with_what_changed() -> None:
    mixed = replace(named(run(), "two"), notes=(Note(0.0, "changed", "engine.version: 1, and 2"),))
    with pytest.raises(AcceptanceError, match=r"two itself, from a --resume on: engine\.version: 1, and 2"):
        compare(run(), mixed)
    assert compare(run(), mixed, anyway=True).differences == (
        "two itself, from a --resume on: engine.version: 1, and 2",
    )


def test_runs_without_a_prompt_in_common_are_refused() -> None:
    other = fake_run(arms((4,)), prompts(3, name="other"), WORLD)
    with pytest.raises(AcceptanceError, match="nothing to compare"):
        compare(run(), other)


def test_across_engines_the_same_weights_compare_and_what_cannot_be_told_is_said() -> None:
    found = compare(
        named(run(), "mlx", manifest=MLX, engine="mlx"), named(run(0.052), "llama", manifest=LLAMA), across_engines=True
    )
    told = {fact.what: fact.same for fact in found.weights}
    assert told["target: number of weights"] is True
    assert told["target: chat template"] is True
    assert told["target: architecture"] is None
    assert told["target: quantisation"] is False
    assert told["tokens of each prompt"] is True
    assert told["greedy answers"] is True
    assert found.engines == ("mlx", "llama_cpp")
    assert any(each.startswith("engine.provider") for each in found.differences)


@pytest.mark.parametrize(
    ("target", "draft", "named_fact"),
    [
        ({"parameters": 999}, 100, "target: number of weights: 1000, and 999"),
        ({"chat_template_sha256": "d" * 64}, 100, "target: chat template"),
        ({}, 99, "drafts: number of weights"),
    ],
)
def test_across_engines_other_weights_are_refused(target: dict[str, Any], draft: int, named_fact: str) -> None:
    one, other = named(run(), "mlx", manifest=MLX), named(run(), "llama", manifest=of(target, draft))
    with pytest.raises(AcceptanceError, match=f"same weights(.|\n)*{named_fact}"):
        compare(one, other, across_engines=True)
    assert compare(one, other, across_engines=True, anyway=True).arms


def test_answers_and_tokens_that_differ_are_counted_and_shown() -> None:
    other = changed(
        run(), lambda each: replace(each, text_digest=each.id, input_tokens=7) if each.prompt == "short-0" else each
    )
    found = compare(named(run(), "mlx", manifest=MLX), named(other, "llama", manifest=LLAMA), across_engines=True)
    told = {fact.what: fact.told for fact in found.weights}
    assert told["greedy answers"] == "19 of 20 greedy answers without a draft are the same"
    assert told["tokens of each prompt"] == "19 of 20 prompts have as many tokens in both"


def test_terminal_markdown_and_json_have_the_same_numbers() -> None:
    found = compare(run(), run(0.052, "slow"))
    screen = io.StringIO()
    show(found, Console(file=screen, width=120))
    ratio = found.arms[1].speed
    shown = f"x{ratio.value:.2f} [x{ratio.low:.2f} to x{ratio.high:.2f}]"
    assert shown in screen.getvalue()
    assert shown.replace("[", r"\[").replace("]", r"\]") in as_markdown(found)
    assert json.loads(as_json(found))["arms"][1]["speed"]["value"] == ratio.value


def test_hostile_names_are_texts_in_a_comparison() -> None:
    odd = named(run(), f"[bold]{HOSTILE}\x1b[31m", conditions={"notes": {"ambient": "[red]|\x1b[2J"}})
    found, screen = compare(odd, run()), io.StringIO()
    show(found, Console(file=screen, width=300, force_terminal=False))
    assert "[bold]<script>" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()
    bars = {line.replace(r"\|", "").count("|") for line in as_markdown(found).splitlines() if line.startswith("|")}
    assert bars == {11}


def test_what_was_not_measured_is_said() -> None:
    blind = changed(run(), lambda each: replace(each, check=None, peak_rss=None, time_to_first_token=None))
    found = compare(run(), blind)
    assert (found.arms[0].memory, found.arms[0].success, found.arms[0].time_to_first_token) == (None, None, None)
    assert as_markdown(found).count("not measured") >= 3
