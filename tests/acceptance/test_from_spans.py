"""A mix out of exported spans: their lengths, and nothing else of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.acceptance.from_spans import Length, prompts_of_spans, read_lengths
from otel_specdecode.acceptance.material import estimated_tokens
from otel_specdecode.acceptance.prompt_files import PromptError
from otel_specdecode.telemetry.names import Attr

SECRET = "the blue heron sleeps"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attribute(key: str, value: object) -> dict[str, Any]:
    return {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def span(tokens: int, output: int, operation: str = "chat", cohort: str = "normal", **more: object) -> dict[str, Any]:
    attributes = {
        Attr.GEN_AI_OPERATION_NAME: operation,
        Attr.SPECDECODE_COHORT: cohort,
        Attr.GEN_AI_USAGE_INPUT_TOKENS: tokens,
        Attr.GEN_AI_USAGE_OUTPUT_TOKENS: output,
        Attr.GEN_AI_INPUT_MESSAGES: SECRET,
        Attr.GEN_AI_OUTPUT_MESSAGES: SECRET,
        **more,
    }
    return {"name": f"{operation} m", "attributes": [attribute(key, value) for key, value in attributes.items()]}


def line(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}) + "\n"


def write(spans: Iterable[dict[str, Any]], name: str = "spans.jsonl") -> None:
    Path(name).write_text("".join(line(each) for each in spans))


def text_of(prompt: Any) -> str:
    return prompt.text if prompt.text is not None else prompt.messages[0]["content"]


def test_only_ordinary_requests_count() -> None:
    batch = {Attr.SPECDECODE_BATCH_SIZE: 2}
    write(
        [
            span(10, 20),
            *(span(1, 1, cohort=cohort) for cohort in ("control", "probe", "fallback", "bench", "")),
            span(11, 21, "text_completion"),
            span(12, 22, "embeddings"),
            span(13, 23, **{Attr.ERROR_TYPE: "ValueError"}),
            span(14, 24, **batch),
            span(0, 25),
            span(15, 0),
            {"name": "GET /"},
        ]
    )
    assert read_lengths(["spans.jsonl"]) == [Length("chat", 10, 20), Length("text_completion", 11, 21)]


def test_integers_may_be_texts_or_numbers() -> None:
    one = span(10, 20)
    for each in one["attributes"]:
        if "intValue" in each["value"]:
            each["value"]["intValue"] = int(each["value"]["intValue"])
    write([one])
    assert read_lengths(["spans.jsonl"]) == [Length("chat", 10, 20)]


def test_metrics_and_logs_beside_spans_are_passed_over() -> None:
    Path("all.jsonl").write_text('{"resourceMetrics": []}\n\n{"resourceLogs": []}\n' + line(span(10, 20), span(11, 21)))
    assert len(read_lengths(["all.jsonl"])) == 2


def test_a_last_line_that_is_still_being_written_is_passed_over() -> None:
    Path("all.jsonl").write_text(line(span(10, 20)) + line(span(11, 21))[:100])
    assert len(read_lengths(["all.jsonl"])) == 1


def test_every_bad_line_is_told() -> None:
    Path("bad.jsonl").write_text('{"a": 1}\n' + line(span(1, 2)) + '{\n[]\n{"resourceSpans": 3}\n')
    with pytest.raises(PromptError) as caught:
        read_lengths(["bad.jsonl", "gone.jsonl"])
    assert [each.partition(": ")[0] for each in caught.value.lines] == [
        *(f"bad.jsonl:{number}" for number in (1, 3, 4, 5)),
        "gone.jsonl:1",
    ]


def test_files_without_a_request_are_told() -> None:
    write([span(1, 2, cohort="bench")])
    with pytest.raises(PromptError, match=r"^spans\.jsonl:1: no span of a request \(cohort normal, with gen_ai\."):
        prompts_of_spans(["spans.jsonl"])


def test_prompts_are_as_long_as_requests_were_and_weigh_as_many() -> None:
    write([*[span(100, 50)] * 30, *[span(2000, 300)] * 10, *[span(6000, 20)] * 10])
    prompts = prompts_of_spans(["spans.jsonl"], bins=5)
    assert {(prompt.tier, prompt.max_tokens) for prompt in prompts} >= {("short", 50), ("long", 20)}
    assert sum(prompt.weight for prompt in prompts) == 50
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        wanted = {"short": 100, "mid": 2000, "long": 6000}[prompt.tier]
        assert estimated_tokens(text_of(prompt)) == pytest.approx(wanted, abs=4)


@pytest.mark.parametrize("tokens", [1, 2, 12, 40, 60, 1000])
def test_a_prompt_is_as_long_as_it_has_to_be_however_short(tokens: int) -> None:
    write([span(tokens, 5)])
    (prompt,) = prompts_of_spans(["spans.jsonl"])
    assert tokens - 3 <= estimated_tokens(text_of(prompt)) <= tokens


def test_a_chat_stays_a_chat_and_a_completion_one() -> None:
    write([span(100, 50)] * 9 + [span(30, 40, "text_completion")])
    prompts = prompts_of_spans(["spans.jsonl"], bins=4)
    assert [prompt.text is None for prompt in prompts] == [True, True, True, False]
    assert prompts[-1].weight == 1


@pytest.mark.parametrize("bins", [2, 3, 7, 24, 100])
def test_there_are_never_more_prompts_than_bins(bins: int) -> None:
    rng = random.Random(bins)
    write(
        span(rng.randint(1, 3000), rng.randint(1, 400), rng.choice(["chat", "text_completion", "chat"]))
        for _ in range(150)
    )
    prompts = prompts_of_spans(["spans.jsonl"], bins=bins)
    assert bins // 2 <= len(prompts) <= bins
    assert sum(prompt.weight for prompt in prompts) == 150


def test_inputs_and_outputs_are_parted_by_their_quantiles() -> None:
    write(span(tokens, output) for tokens in range(1, 101) for output in (10, 500))
    prompts = prompts_of_spans(["spans.jsonl"], bins=4)
    assert [(prompt.id, prompt.max_tokens, prompt.weight) for prompt in prompts] == [
        ("chat-in26-out10-1", 10, 50),
        ("chat-in26-out500-1", 500, 50),
        ("chat-in76-out10-1", 10, 50),
        ("chat-in76-out500-1", 500, 50),
    ]


def test_a_seed_makes_the_texts() -> None:
    write([span(200, 50)] * 4)
    one, again, other = (prompts_of_spans(["spans.jsonl"], bins=2, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert text_of(one[0]) != text_of(other[0])
    assert text_of(one[0]) != text_of(one[1])


def test_no_content_of_a_span_is_in_a_prompt() -> None:
    write([span(300, 50)] * 4)
    assert not any(SECRET in repr(prompt) for prompt in prompts_of_spans(["spans.jsonl"]))
