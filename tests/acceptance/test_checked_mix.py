"""The mix `checked`: its checks pass any phrasing of the right answer, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.answer_checks import (
    choice_check,
    document_check,
    facts_check,
    in_words,
    number_check,
    phrase_check,
    sequence_check,
)
from otel_specdecode.acceptance.checked_mix import checked, checked_tasks
from otel_specdecode.acceptance.checks import passes
from otel_specdecode.acceptance.prompts import Check
from otel_specdecode.thresholds import thresholds

TASKS = {id_: task for id_, _, task in checked_tasks()}
PHRASINGS = ("{}", " {}\n", "{}.", "**{}**", '"{}"', "```\n{}\n```", "The answer is: {}", "Sure! Here it is:\n\n{}\n")
DOCUMENTS = ("{}", " {}\n", "```json\n{}\n```", "Sure:\n\n```json\n{}\n```")


def test_the_gate_of_quality_has_enough_of_it_in_every_kind() -> None:
    counts = Counter(prompt.kind for prompt in checked())
    assert sum(counts.values()) == 236
    assert set(counts) == {"code", "summary", "translation", "json_tool", "other"}
    assert min(counts.values()) >= 40
    assert all(prompt.check is not None and prompt.max_tokens <= 96 for prompt in checked())


def test_no_question_is_asked_twice_and_all_are_short() -> None:
    questions = [task.question for task in TASKS.values()]
    assert len(set(questions)) == len(questions)
    assert max(map(len, questions)) < thresholds()["context_tier"]["short"]


def phrasings(check: Check) -> tuple[str, ...]:
    return DOCUMENTS if check.json_schema is not None else PHRASINGS


def test_the_right_answer_passes_however_it_is_phrased() -> None:
    for id_, task in TASKS.items():
        said = [each.format(task.right) for each in phrasings(task.check)]
        assert (id_, [each for each in said if not passes(task.check, each)]) == (id_, [])


def test_a_wrong_answer_an_echo_and_no_answer_do_not() -> None:
    for id_, task in TASKS.items():
        assert len(task.wrong) >= 2
        said = [each.format(wrong) for wrong in task.wrong for each in phrasings(task.check)]
        said += [task.question, "", "I do not know."]
        assert (id_, [each for each in said if passes(task.check, each)]) == (id_, [])


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (
            number_check(42),
            [
                "17 + 25 = 42",
                "42 is 17 + 25",
                "It prints `42`.",
                "$42$",
                "Forty-two",
                "forty two.",
                "42.0",
                "1. It is 42",
            ],
            ["17 + 42 = 59", "142", "42.5", "-42", "42,000", "x42", "forty", "forty-three", "1, 42, 3"],
        ),
        (
            number_check(2),
            ["Two of them.", "There are 2.", "the one word is there two times"],
            ["twenty-two", "three, two, four", "12", "-2"],
        ),
        (number_check(40, words=False), ["40", "forty is 40"], ["forty"]),
        (
            choice_check("Uma", ["Bo", "Ada"]),
            ["Uma", "uma!", "It is Uma, not Bo.", "Of Bo, Uma and Ada, it is Uma."],
            ["Bo", "Bo, not Uma, and not Ada", "Umabel", "Bo, Uma, Ada"],
        ),
        (
            sequence_check(["cat", "dog", "owl"]),
            [
                "cat, dog, owl",
                "Cat, dog and owl.",
                "1. cat\n2. dog\n3. owl",
                "- cat\n- dog\n- owl",
                "['cat', 'dog', 'owl']",
            ],
            ["cat, owl, dog", "cat, dog, fox, owl", "cats, dog, owl", "cat"],
        ),
        (
            sequence_check(["10", "25"]),
            ["10, 25", "1. 10\n2. 25", "10 25"],
            ["25, 10", "1025", "10, 11, 25", "110, 25"],
        ),
        (
            phrase_check("print(row + 3, x)"),
            ["print(row + 3, x)", "`print(row+3,x)`", "The line is:\nprint( row + 3, x )"],
            ["print(rows + 3, x)", "print(row + 33, x)", "print(row + 3, y)"],
        ),
        (
            document_check({"name": "bo", "ages": [2, 3]}),
            ['{"name": "bo", "ages": [2, 3]}', '{"ages": [2, 3.0], "name": "Bo"}'],
            ['{"name": "bob", "ages": [2, 3]}', '{"name": "bo", "ages": [2, 3, 4]}', '{"name": "bo", "ages": [2]}'],
        ),
        (
            facts_check(["Ada", "12"], 40),
            ["Ada sold 12 bags.", "12 bags were sold\nby Ada"],
            ["Ada sold 120 bags.", "Adam sold 12 bags.", f"Ada sold 12 bags. {'It rained. ' * 4}"],
        ),
    ],
    ids=["42", "2", "40", "choice", "words", "numbers", "phrase", "document", "facts"],
)
def test_a_check_reads_answers_as_a_person_does(check: Check, right: list[str], wrong: list[str]) -> None:
    assert [each for each in right if not passes(check, each)] == []
    assert [each for each in wrong if passes(check, each)] == []


def test_numbers_have_english_names() -> None:
    assert [in_words(number) for number in (2, 13, 20, 47, 99)] == [
        "two",
        "thirteen",
        "twenty",
        "forty-seven",
        "ninety-nine",
    ]


@pytest.mark.parametrize("id_", ["checked-value-01", "checked-index-01", "checked-sale-01", "checked-sort-01"])
def test_a_long_answer_is_read_in_no_time(id_: str) -> None:
    # Nothing in these patterns repeats a repeat; one that did would never come back from this.
    assert not passes(TASKS[id_].check, "word, and 7 or so; " * 1000)
