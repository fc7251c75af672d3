"""The bundled mixes, and the seeded text in them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.checks import passes
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.material import MATERIALS, Material, estimated_tokens, material
from otel_specdecode.acceptance.mix import MIXES, bundled, gathered
from otel_specdecode.acceptance.prompt_files import prompts_digest, read_prompts, write_prompts
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.generation.judgement import context_tier
from otel_specdecode.tiny_pair import model_path

BEYOND = {"summary-sky", "list-json", "list-twenty", "repeat-goat", "repeat-key", "count-7-22", "story-hen"}
"""Prompts of the tiny mix whose check the tiny target does not pass, greedily."""


def text_of(prompt: Prompt) -> str:
    assert prompt.messages is not None
    return prompt.messages[-1]["content"]


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_is_what_a_prompt_file_may_hold(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mix.jsonl"
    write_prompts(path, bundled(name))
    assert read_prompts([path]) == bundled(name)


def test_the_default_mix_has_every_kind_in_every_tier() -> None:
    counts = Counter((prompt.tier, prompt.kind) for prompt in bundled("default"))
    assert sum(counts.values()) == 40
    assert len(counts) == 3 * 5


def test_prompts_of_the_default_mix_are_in_the_tier_that_they_say_with_room_to_spare() -> None:
    for prompt in bundled("default"):
        tokens = estimated_tokens(text_of(prompt))
        assert context_tier(round(tokens * 0.8)) == context_tier(round(tokens * 1.25)) == prompt.tier, prompt.id


def test_every_place_of_the_default_mix_is_filled() -> None:
    assert not any(f"{{{kind}" in text_of(prompt) for prompt in bundled("default") for kind in MATERIALS)


@pytest.mark.parametrize(
    ("id_", "answer"),
    [
        ("code-prime", "```python\ndef is_prime(n: int) -> bool:\n    ...\n```"),
        ("code-sql-totals", "SELECT customer, SUM(total)\nFROM orders\nGROUP BY customer\nORDER BY 2 DESC;"),
        ("code-loop-to-comprehension", "def even_squares(numbers):\n    return [n * n for n in numbers if n % 2 == 0]"),
        ("json-contact", '{"name": "Lena", "age": 34, "city": "Oslo"}'),
        ("json-weather-call", '{"tool": "get_weather", "arguments": {"place": "Bergen", "day": "tomorrow"}}'),
        ("json-list-of-planets", json.dumps([{"name": "x", "position": number} for number in range(1, 9)])),
        ("json-order-lines", json.dumps([{"item": "x", "quantity": number} for number in (2, 12, 3)])),
        ("mid-summary-find", "The code is 7413."),
        ("mid-json-find-record", '```json\n{"number": 42, "animal": "heron"}\n```'),
        ("mid-json-first-records", json.dumps([{"number": number, "owner": "x"} for number in range(5)])),
        ("long-json-find-record", '{"number": 7, "place": "watchtower"}'),
    ],
)
def test_a_check_of_the_default_mix_passes_a_good_answer_and_no_other(id_: str, answer: str) -> None:
    prompt = next(each for each in bundled("default") if each.id == id_)
    assert prompt.check is not None
    assert passes(prompt.check, answer)
    assert not passes(prompt.check, "I do not know.")


def test_what_is_asked_for_in_long_material_is_in_it_once() -> None:
    for id_, needle in (
        ("mid-summary-find", "7413"),
        ("long-summary-find", "2986"),
        ("mid-json-find-record", '"Quill"'),
    ):
        prompt = next(each for each in bundled("default") if each.id == id_)
        assert text_of(prompt).count(needle) == 1


def test_a_mix_stays_what_it_is() -> None:
    # Runs of different prompts are not compared: who changes a mix says so in the changelog.
    assert {name: prompts_digest(bundled(name))[:16] for name in MIXES} == {
        "default": "53f4f8716febc54e",
        "tiny": "7b55fb68b0de952a",
        "checked": "02ffa560b5673842",
    }


def test_a_mix_that_is_not_there_is_told() -> None:
    with pytest.raises(AcceptanceError, match=r"^there is no mix 'defalt'; did you mean default\?"):
        bundled("defalt")


def test_files_and_mixes_are_asked_together_each_mix_once(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"id": "own", "prompt": "hello"}\n')
    found = gathered([path], ["checked", "default", "checked"])
    assert found == (*read_prompts([path]), *bundled("checked"), *bundled("default"))
    assert len({prompt.id for prompt in found}) == len(found)


def test_an_id_of_a_file_that_a_mix_has_too_is_told(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    write_prompts(path, bundled("tiny")[:1])
    with pytest.raises(AcceptanceError, match=r"^id code-scale-rows is in a prompt file and in a mix: rename it"):
        gathered([path], ["tiny"])


@pytest.mark.parametrize("kind", MATERIALS)
@pytest.mark.parametrize("tokens", [1, 40, 1000, 5000])
def test_material_is_as_long_as_asked_for(kind: Material, tokens: int) -> None:
    longest_part = 60
    assert tokens - longest_part <= estimated_tokens(material(kind, tokens, "a")) <= max(tokens, longest_part)


@pytest.mark.parametrize("kind", MATERIALS)
def test_material_is_that_of_its_seed_and_two_seeds_share_no_beginning(kind: Material) -> None:
    texts = [material(kind, 400, str(seed)) for seed in range(4)]
    assert texts == [material(kind, 400, str(seed)) for seed in range(4)]
    assert len({text[:120] for text in texts}) == 4


Answer = Callable[[Prompt], tuple[str, int]]


@pytest.fixture(scope="module")
def llama_cpp_answer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answer]:
    """What the tiny target answers to a prompt on llama.cpp, and in how many tokens."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    gguf = pytest.importorskip("otel_specdecode.tiny_pair.gguf", reason="needs the [demo] extra")
    path = gguf.convert(model_path("target"), tmp_path_factory.mktemp("tiny") / "target.gguf")
    llama = llama_cpp.Llama(str(path), n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False)

    def answer(prompt: Prompt) -> tuple[str, int]:
        chat: Any = llama.create_chat_completion(
            messages=list(prompt.messages or ()), max_tokens=prompt.max_tokens, temperature=0.0
        )
        assert chat["usage"]["prompt_tokens"] + prompt.max_tokens < 1024
        return chat["choices"][0]["message"]["content"], chat["usage"]["completion_tokens"]

    yield answer
    llama.close()


@pytest.fixture(scope="module")
def mlx_answer() -> Answer:
    """The same on MLX-LM."""
    mlx_lm = pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    model, tokenizer = mlx_lm.load(str(model_path("target")))

    def answer(prompt: Prompt) -> tuple[str, int]:
        tokens = tokenizer.apply_chat_template(
            list(prompt.messages or ()), add_generation_prompt=True, return_dict=False
        )
        pieces = list(mlx_lm.stream_generate(model, tokenizer, tokens, max_tokens=prompt.max_tokens))
        return "".join(piece.text for piece in pieces), pieces[-1].generation_tokens

    return answer


@pytest.mark.llama_cpp
def test_the_tiny_target_passes_what_it_was_trained_for_and_talks_long_on_llama_cpp(llama_cpp_answer: Answer) -> None:
    passed, failed, long = set(), set(), set()
    for prompt in bundled("tiny"):
        text, tokens = llama_cpp_answer(prompt)
        if tokens >= 128:
            long.add(prompt.id)
        if prompt.check is not None:
            (passed if passes(prompt.check, text) else failed).add(prompt.id)
    assert failed >= BEYOND
    # Rounding of another build may turn a word or two.
    assert len(passed) >= 14
    assert {id_.partition("-")[0] for id_ in long} == {"talk"}
    assert len(long) >= 6


@pytest.mark.mlx
def test_it_does_so_on_mlx(mlx_answer: Answer) -> None:
    for id_, long in (("code-scale-rows", False), ("list-animals", False), ("repeat-kite", False), ("talk-2-9", True)):
        prompt = next(each for each in bundled("tiny") if each.id == id_)
        text, tokens = mlx_answer(prompt)
        assert (tokens >= 128) is long
        assert prompt.check is None or passes(prompt.check, text)


def test_the_tiny_mix_has_checks_of_every_kind() -> None:
    kinds = {prompt.kind for prompt in bundled("tiny") if prompt.check is not None and prompt.id not in BEYOND}
    assert kinds == {"code", "summary", "translation", "json_tool", "other"}
    assert {prompt.id for prompt in bundled("tiny")} >= BEYOND
