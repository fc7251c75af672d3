"""The bundled mix `checked`: short tasks whose right answers follow from how they were made.

It is there for the gate `quality`, which needs 200 prompts with a check. A small instruct model gets some of them right
and some wrong. Answers are short, so the mix says little about speed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from otel_specdecode.acceptance.answer_checks import (
    choice_check,
    document_check,
    facts_check,
    in_words,
    number_check,
    phrase_check,
    sequence_check,
)
from otel_specdecode.acceptance.checks import passes
from otel_specdecode.acceptance.prompts import Check, Prompt
from otel_specdecode.acceptance.records import Kind
from otel_specdecode.tiny_pair.training.corpus import ANIMALS, COLOURS, FOODS, NAMES, NOUNS, THINGS

_SHORT, _LONG = 48, 96
_GOODS: Final = [thing.split(" ", 1)[1] for thing in THINGS if " of " not in thing]
_TOPICS: Final = {
    "weather": ["It rained all night.", "The wind turned to the north.", "Snow is expected on the hill."],
    "food": ["The soup needs salt.", "Berries were cheap today.", "The bread is in the oven."],
    "travel": ["The train leaves at noon.", "The boat was late again.", "We took the road along the river."],
    "money": ["The rent is due.", "Prices went up again.", "The bank closes early."],
    "health": ["The fever is gone.", "My tooth still hurts.", "The nurse changed the bandage."],
}
_STRANGE: Final = (
    *("mel", "dor", "ruk", "tani", "sul", "pek", "lomi", "var"),
    *("geb", "nuri", "ost", "fip", "zan", "quo", "hild", "bram"),
)
_LANGUAGE: Final = dict(zip(ANIMALS, _STRANGE, strict=True))
_DOINGS: Final = {"sleeps": "ela", "runs": "oru", "sings": "imba", "waits": "usk", "swims": "atto"}


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with its answers.

    Attributes:
        question: What is asked.
        check: What an answer has to be.
        right: The right answer alone, as the question asks for it.
        wrong: Answers that are not.
        max_tokens: The most tokens that an answer may have.
    """

    question: str
    check: Check
    right: str
    wrong: tuple[str, ...]
    max_tokens: int = _SHORT


@cache
def checked() -> tuple[Prompt, ...]:
    """Return the prompts."""
    return tuple(
        Prompt(
            id_,
            messages=({"role": "user", "content": task.question},),
            kind=kind,
            max_tokens=task.max_tokens,
            check=task.check,
        )
        for id_, kind, task in checked_tasks()
    )


@cache
def checked_tasks() -> tuple[tuple[str, Kind, Answered], ...]:
    """Return id, kind and task of each prompt."""
    return tuple(_made())


def _made() -> Iterator[tuple[str, Kind, Answered]]:
    seen: set[str] = set()
    for make, kind, count in _FAMILIES:
        name = make.__name__.strip("_")
        for number in range(1, count + 1):
            rng = random.Random(f"checked:{name}:{number}")  # noqa: S311 - a seeded task, no secret
            task = make(rng)
            while task.question in seen or passes(task.check, task.question):  # an echo is no answer
                task = make(rng)
            seen.add(task.question)
            yield f"checked-{name.replace('_', '-')}-{number:02}", kind, task


def _number(question: str, right: int) -> Answered:
    wrong = tuple(str(each) for each in (right + 1, right - 1, right * 10, -right))
    return Answered(f"{question}Answer with the number alone.", number_check(right), str(right), wrong)


def _choice(question: str, right: str, others: list[str]) -> Answered:
    return Answered(question, choice_check(right, others), right, tuple(others))


def _phrase(question: str, right: str, *wrong: str) -> Answered:
    return Answered(question, phrase_check(right), right, wrong)


def _document(question: str, right: Any, *wrong: Any) -> Answered:
    texts = tuple(json.dumps(each) for each in wrong)
    return Answered(
        f"{question} Answer with the JSON alone.", document_check(right), json.dumps(right), texts, max_tokens=_LONG
    )


def _inner(rng: random.Random, options: list[str]) -> tuple[str, list[str]]:
    """Return one of the options that is neither the first nor the last, and the others."""
    right = rng.choice(options[1:-1])
    return right, [each for each in options if each != right]


# Code


def _value(rng: random.Random) -> Answered:
    numbers = rng.sample(range(3, 30), rng.randint(3, 4))
    factor = rng.randint(2, 5)
    code, right = rng.choice(
        [
            (f"print(sum({numbers}))", sum(numbers)),
            (f"print(max({numbers}) - min({numbers}))", max(numbers) - min(numbers)),
            (f"print(len({numbers}) * {factor + 10})", len(numbers) * (factor + 10)),
            (f"total = {factor}\nfor n in {numbers}:\n    total += n\nprint(total)", factor + sum(numbers)),
            (
                f"n = {numbers[0]}\nfor _ in range({factor}):\n    n += {numbers[1]}\nprint(n)",
                numbers[0] + factor * numbers[1],
            ),
        ]
    )
    return _number(f"What does this Python program print?\n\n{code}\n\n", right)


def _function(rng: random.Random) -> Answered:
    sign, word, name = rng.choice([("*", "times", "scaled"), ("+", "plus", "raised"), ("-", "minus", "lowered")])
    many, factor = rng.choice(NOUNS)[:-1], rng.randint(2, 60)
    formula = rf"\b{many}\s*[{sign}]\s*{factor}\b"
    if sign != "-":
        formula += rf"|\b{factor}\s*[{sign}]\s*{many}\b"
    check = Check(regex=rf"(?s)def\s+{name}_{many}\s*\(\s*{many}\b[^)]*\)(?=.*\breturn\b).*?:(?=.*(?:{formula}))")
    asked = f"Write a Python function {name}_{many} that takes {many} and returns {many} {word} {factor}."

    def code(called: str, value: str) -> str:
        return f"def {called}({many}):\n    return {value}"

    right = code(f"{name}_{many}", f"{many} {sign} {factor}")
    wrong = (
        code(f"{name}_{many}", f"{many} {sign} {factor + 1}"),
        code(f"{name}_{many}", f"{many} / {factor}"),
        code(f"{name}{many}", f"{many} {sign} {factor}"),
        code(f"{name}_{many}", many),
    )
    return Answered(f"{asked} Answer with the code alone.", check, right, wrong, max_tokens=_LONG)


def _rename(rng: random.Random) -> Answered:
    old, new, other = (noun[:-1] for noun in rng.sample(NOUNS, 3))
    line = rng.choice(["result = {0} * {2} + {1}", "{0} = {1} - {2}", "print({0} + {2}, {1})", "if {0} > {2}: {1} = 0"])
    number = rng.randint(2, 90)
    before, after = (line.format(each, other, number) for each in (old, new))
    question = f"Rename the variable {old} to {new} in this line of Python. Answer with the line alone.\n\n{before}"
    return _phrase(question, after, before, line.format(new, new, number), line.format(new, other, number + 1))


def _index(rng: random.Random) -> Answered:
    names = rng.sample(NAMES, 5)
    right, others = _inner(rng, names)
    question = f"names = {names}\n\nWhat is names[{names.index(right)}] in Python? Answer with the name alone."
    return _choice(question, right, others)


# Summaries


def _sale(rng: random.Random) -> Answered:
    giver, taker, *more = rng.sample(NAMES, 4)
    count, food = rng.randint(12, 80), rng.choice(FOODS)
    other = rng.choice([each for each in FOODS if each != food])
    question = (
        f"Early in the morning, before the rain had stopped, {giver} went to the market with a cart. There {giver} "
        f"sold {count} bags of {food} to {taker}, who paid at once. {more[0]} and {more[1]} looked on. Summarise in "
        f"one short sentence who sold how many bags of what to whom."
    )

    def told(by: str, to: str, of: str, many: int) -> str:
        return f"{by} sold {many} bags of {of} to {to}."

    wrong = (
        told(more[0], taker, food, count),
        told(giver, more[1], food, count),
        told(giver, taker, other, count),
        told(giver, taker, food, count + 1),
    )
    return Answered(
        question, facts_check((giver, taker, food, str(count)), 160), told(giver, taker, food, count), wrong
    )


def _topic(rng: random.Random) -> Answered:
    topics = rng.sample(sorted(_TOPICS), 4)
    right, others = _inner(rng, topics)
    note = " ".join(rng.sample(_TOPICS[right], 2))
    return _choice(
        f"What is this note about: {', '.join(topics)}? Answer with one word.\n\n{note}\n\n"
        f"Remember: {', '.join(topics)}.",
        right,
        others,
    )


def _log(rng: random.Random) -> Answered:
    doors = rng.sample(range(2, 31), 5)
    seconds = rng.sample(range(31, 100), 5)
    lines = [f"door {door} was open for {second} seconds" for door, second in zip(doors, seconds, strict=True)]
    longest = seconds.index(max(seconds))
    return _number("Which door was open the longest?\n\n" + "\n".join(lines) + "\n\n", doors[longest])


# Translations


def _invented(rng: random.Random) -> Answered:
    animals, doings = rng.sample(ANIMALS, 3), rng.sample(sorted(_DOINGS), 2)
    words = [*((_LANGUAGE[each], each) for each in animals), *((_DOINGS[each], each) for each in doings)]
    rng.shuffle(words)
    listed = ", ".join(f"{strange} is {english}" for strange, english in words)
    who, does = rng.choice(animals), rng.choice(doings)
    question = f'In an invented language {listed}. What is "{_LANGUAGE[who]} {_DOINGS[does]}" in English?'
    wrong_who = next(each for each in animals if each != who)
    wrong_does = next(each for each in doings if each != does)
    return _phrase(question, f"{who} {does}", f"{wrong_who} {does}", f"{who} {wrong_does}", f"{does} {who}")


def _digits(rng: random.Random) -> Answered:
    number = rng.randint(21, 99)
    question = f"Write {in_words(number)} in digits."
    return Answered(question, number_check(number, words=False), str(number), (str(number + 1), in_words(number)))


def _words(rng: random.Random) -> Answered:
    number = rng.choice([each for each in range(21, 100) if each % 10])
    right = in_words(number)
    check = Check(regex=rf"(?i)\b{right.replace('-', '[- ]')}\b")
    wrong = (in_words(number - 1), in_words(number // 10 * 10), str(number))
    return Answered(f"Write {number} in English words.", check, right, wrong)


def _reworded(rng: random.Random) -> Answered:
    (giver, taker), (old, new) = rng.sample(NAMES, 2), rng.sample(_GOODS, 2)
    sentence = f"{giver} gave the {{}} to {taker}."
    before, after = sentence.format(old), sentence.format(new)
    question = f'Repeat this sentence with "{new}" in the place of "{old}": {before}'
    return _phrase(question, after, before, f"{taker} gave the {new} to {giver}.", f"{giver} gave {taker} the {old}.")


# JSON


def _record(rng: random.Random) -> Answered:
    name, animal, colour, age = rng.choice(NAMES), rng.choice(ANIMALS), rng.choice(COLOURS), rng.randint(2, 20)
    right = {"name": name, "animal": animal, "colour": colour, "age": age}
    told = rng.choice(
        [
            f"{name} is a {colour} {animal} of {age} years.",
            f"The {animal} is called {name}. It is {colour}, and {age} years old.",
            f"A {animal}, {age} years old and {colour}, has the name {name}.",
        ]
    )
    question = f"{told}\n\nReturn a JSON object with the keys name, animal, colour and age; age is a number."
    return _document(question, right, {**right, "age": age + 1}, {**right, "age": str(age)}, {"name": name}, [right])


def _heavy(rng: random.Random) -> Answered:
    animals = rng.sample(ANIMALS, 5)
    weights = rng.sample(range(10, 90), 5)
    bound = sorted(weights)[2] + 1
    right = [animal for animal, weight in zip(animals, weights, strict=True) if weight >= bound]
    records = "\n".join(json.dumps({"animal": a, "weight": w}) for a, w in zip(animals, weights, strict=True))
    question = f"{records}\n\nReturn a JSON array of the animals that weigh {bound} or more, in this order, as strings."
    return _document(question, right, animals, right[:1], [*right, "whale"], {"animals": right})


def _call(rng: random.Random) -> Answered:
    tool, words, key, what = rng.choice(
        [
            ("find_owner", "Find out who owns the {}.", "thing", _GOODS),
            ("feed_animal", "Give the {} something to eat.", "animal", ANIMALS),
            ("send_greeting", "Say hello to {}.", "name", NAMES),
            ("mix_colour", "Make some {} paint.", "colour", COLOURS),
        ]
    )
    value, other = rng.sample(what, 2)
    count = rng.randint(2, 9)
    right = {"tool": tool, "arguments": {key: value, "times": count}}
    question = (
        f"A tool is called with JSON such as {json.dumps({'tool': tool, 'arguments': {key: other, 'times': 1}})}. "
        f"{words.format(value)} Do it {count} times, with one call."
    )
    wrong = {**right, "tool": f"{tool}s"}, {**right, "arguments": {key: other, "times": count}}, right["arguments"]
    return _document(question, right, *wrong)


# Other


def _arithmetic(rng: random.Random) -> Answered:
    first, second, small = rng.randint(21, 90), rng.randint(11, 20), rng.randint(3, 9)
    name, thing = rng.choice(NAMES), rng.choice(_GOODS).split(" ")[-1]
    question, right = rng.choice(
        [
            (f"What is {first} + {second}? ", first + second),
            (f"What is {first} - {second}? ", first - second),
            (f"What is {second} times {small}? ", second * small),
            (
                f"{name} has {first} {thing}s, gives away {second} and gets {small} more. How many are there now? ",
                first - second + small,
            ),
            (f"{name} fills {small} boxes with {second} {thing}s each. How many {thing}s are that? ", second * small),
        ]
    )
    return _number(question, right)


def _count(rng: random.Random) -> Answered:
    wanted, *others = rng.sample(COLOURS, 3)
    right = rng.randint(2, 5)
    listed = [wanted] * right + [rng.choice(others) for _ in range(rng.randint(3, 5))]
    rng.shuffle(listed)
    return _number(f"{', '.join(listed)}\n\nHow often is {wanted} in this list? ", right)


def _sort(rng: random.Random) -> Answered:
    if rng.random() < 0.5:
        given = [str(each) for each in rng.sample(range(10, 100), 4)]
        question = "Sort these numbers from small to large"
    else:
        given = rng.sample(ANIMALS, 4)
        question = "Sort these words by the alphabet"
    right = sorted(given)
    swapped = [right[1], right[0], *right[2:]]
    wrong = tuple(", ".join(each) for each in (swapped, right[::-1], [right[0], *right[2:]]))
    question = f"{question}, with commas between them: {', '.join(given)}."
    return Answered(question, sequence_check(right), ", ".join(right), wrong)


def _owner(rng: random.Random) -> Answered:
    names, animals, colours = rng.sample(NAMES, 5), rng.sample(ANIMALS, 5), rng.sample(COLOURS, 5)
    right, others = _inner(rng, names)
    rows = "\n".join(f"| {' | '.join(row)} |" for row in zip(names, colours, animals, strict=True))
    wanted = names.index(right)
    asked = f"Who owns the {colours[wanted]} {animals[wanted]}? Answer with the name alone."
    return _choice(f"| owner | colour | animal |\n|---|---|---|\n{rows}\n\n{asked}", right, others)


_FAMILIES: Final[tuple[tuple[Callable[[random.Random], Answered], Kind, int], ...]] = (
    *((_value, "code", 16), (_function, "code", 14), (_rename, "code", 10), (_index, "code", 10)),
    *((_sale, "summary", 16), (_topic, "summary", 14), (_log, "summary", 14)),
    *(
        (_invented, "translation", 16),
        (_digits, "translation", 8),
        (_words, "translation", 8),
        (_reworded, "translation", 14),
    ),
    *((_record, "json_tool", 16), (_heavy, "json_tool", 14), (_call, "json_tool", 14)),
    *((_arithmetic, "other", 16), (_count, "other", 12), (_sort, "other", 12), (_owner, "other", 12)),
)
