"""Seeded text of a chosen length: no third party's, nobody's content, and the same on every machine."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Final, Literal, get_args

from otel_specdecode.tiny_pair.training.corpus import ANIMALS, COLOURS, FOODS, NAMES, NOUNS, PLACES, VERBS, fables

Material = Literal["prose", "log", "records", "code"]

_PIECE: Final = re.compile(r"[A-Za-z]{1,12}|\d|[^\w\s]|\n|[^\W\dA-Za-z]")
_PROSE: Final = ("Once", "The ")


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: common words, digits, signs and line ends count one each.

    What an engine counts is up to a quarter off of it for the material here, and more for other texts and languages.
    """
    return len(_PIECE.findall(text))


def material(kind: Material, tokens: int, seed: str) -> str:
    """Return text of about so many tokens.

    Args:
        kind: Little stories and facts, the log of a machine, records as JSON lines, or Python functions.
        tokens: By estimated_tokens(). Prose is as long to a word, the others to a line.
        seed: Texts of one seed are equal; of two, different from their beginning, so that no cache serves both.
    """
    rng = random.Random(f"{kind}:{seed}")  # noqa: S311 - a seeded text, no secret
    if kind == "prose":
        return _prose(tokens, rng)
    parts: list[str] = []
    have = 0
    for part in {"log": _log, "records": _records, "code": _code}[kind](rng):
        size = estimated_tokens(part) + 1
        if parts and have + size > tokens:
            break
        parts.append(part)
        have += size
    return "\n".join(parts)


def _prose(tokens: int, rng: random.Random) -> str:
    words: list[str] = []
    have = 0
    for story in _stories(rng):
        for word in story.split(" "):
            size = estimated_tokens(word)
            if words and have + size > tokens:
                return " ".join(words)
            words.append(word)
            have += size
    raise AssertionError("stories have no end")


def _stories(rng: random.Random) -> Iterator[str]:
    while True:
        for chat in fables(64, rng.randrange(2**32)):
            if chat.answer.startswith(_PROSE):
                yield chat.answer


def _log(rng: random.Random) -> Iterator[str]:
    minute = rng.randrange(360, 600)
    while True:
        minute += rng.randint(1, 4)
        at = f"{minute // 60 % 24:02}:{minute % 60:02}"
        name, place = rng.choice(NAMES), rng.choice(PLACES)
        yield rng.choice(
            [
                f"{at} pump {rng.randint(1, 9)} near {place}: pressure {rng.randint(20, 80)}, as planned",
                f"{at} {name} checked the gate at {place} and found it closed",
                f"{at} warning: the lamp at {place} is {rng.choice(COLOURS)} instead of {rng.choice(COLOURS)}",
                f"{at} {name} brought {rng.randint(2, 40)} bags of {rng.choice(FOODS)} to {place}",
                f"{at} door {rng.randint(1, 30)} opened by {name}, closed after {rng.randint(5, 90)} seconds",
            ]
        )


def _records(rng: random.Random) -> Iterator[str]:
    number = rng.randrange(100, 900)
    while True:
        number += rng.randint(1, 3)
        record = {
            "number": number,
            "owner": rng.choice(NAMES),
            "animal": rng.choice(ANIMALS),
            "colour": rng.choice(COLOURS),
            "weight": rng.randint(1, 90),
            "place": rng.choice(PLACES).removeprefix("the "),
        }
        yield json.dumps(record)


def _code(rng: random.Random) -> Iterator[str]:
    number = rng.randrange(10, 90)
    while True:
        number += 1
        verb, many = rng.choice(VERBS), rng.choice(NOUNS)
        one, bound = many[:-1], rng.randint(2, 60)
        body = rng.choice(
            [
                (
                    f"    result = []\n    for {one} in {many}:\n        if {one} < {bound}:\n"
                    f"            result.append({one} + {rng.randint(1, 9)})\n    return result\n"
                ),
                (
                    f"    total = 0\n    for place, {one} in enumerate({many}):\n"
                    f"        total += place * {one} - {bound}\n    return total\n"
                ),
                f"    {one} = max({many})\n    if {one} > {bound}:\n        return {one}\n    return {bound}\n",
            ]
        )
        yield f"def {verb}_{many}_{number}({many}):\n{body}"


MATERIALS: Final[tuple[Material, ...]] = get_args(Material)
