"""The `fables` corpus: little stories, facts, lists, counting, repetition and code from a seeded grammar.

No third-party text enters. A chat has one question and one answer; the mix of kinds makes some answers easy to predict
(repetition, counting) and some hard (a story's turns), so that accept rates differ from prompt to prompt as they do in
life.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

ANIMALS = [
    "fox",
    "hen",
    "cat",
    "dog",
    "frog",
    "bear",
    "mouse",
    "owl",
    "goat",
    "hare",
    "crow",
    "duck",
    "wolf",
    "lamb",
    "toad",
    "crab",
]
NAMES = [
    "Ada",
    "Bo",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gus",
    "Hana",
    "Ivo",
    "Jo",
    "Kit",
    "Lena",
    "Max",
    "Nora",
    "Otto",
    "Pia",
    "Rex",
    "Sam",
    "Tess",
    "Uma",
]
PLACES = [
    "the forest",
    "the old mill",
    "the river",
    "the hill",
    "the farm",
    "the harbour",
    "the garden",
    "the village",
    "the cave",
    "the market",
]
THINGS = [
    "a red ball",
    "a shiny coin",
    "a small boat",
    "a warm coat",
    "a bag of seeds",
    "a broken clock",
    "a blue kite",
    "a loaf of bread",
    "a silver key",
    "an old map",
]
TRAITS = ["little", "brave", "shy", "clever", "hungry", "sleepy", "happy", "lonely", "curious", "kind"]
FEELINGS = ["happy", "sad", "proud", "tired", "surprised", "calm", "afraid", "glad"]
WEATHER = [
    "the sun was warm",
    "it was raining",
    "snow covered the ground",
    "the wind was strong",
    "the sky was grey",
    "the stars were bright",
]
MORALS = [
    "It is good to share.",
    "A friend is better than gold.",
    "Slow and steady wins the day.",
    "Listen before you speak.",
    "Small hands can do great work.",
    "Kind words cost nothing.",
]
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "brown", "grey"]
FOODS = ["seeds", "grass", "fish", "berries", "insects"]
VERBS = ["add", "scale", "total", "count", "find", "join", "merge", "clean", "parse", "update"]
NOUNS = ["items", "values", "rows", "words", "names", "points"]


class Chat(NamedTuple):
    """One exchange."""

    question: str
    answer: str


def fables(count: int = 12_000, seed: int = 0) -> list[Chat]:
    """`count` chats; the same seed gives the same chats on every machine."""
    rng = random.Random(seed)  # noqa: S311  (a seeded grammar, no secret)
    kinds: Sequence[Callable[[random.Random], Chat]] = (
        [_story] * 6 + [_facts] * 3 + [_list] + [_count] + [_repetition] * 4 + [_code] * 3
    )
    return [rng.choice(kinds)(rng) for _ in range(count)]


def _an(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _story(rng: random.Random) -> Chat:
    first, second = rng.sample(ANIMALS, 2)
    hero, other = rng.sample(NAMES, 2)
    home, away = rng.sample(PLACES, 2)
    found = rng.choice(THINGS)
    thing = found.split(" ", 1)[1]
    sentences = [
        f"Once upon a time there was a {rng.choice(TRAITS)} {first} named {hero}.",
        rng.choice(
            [
                f"{hero} lived near {home}.",
                f"{hero} had a small house by {home}.",
                f"Every day {hero} walked to {home}.",
            ]
        ),
        (
            f"One {rng.choice(['morning', 'evening', 'day', 'night'])}, when {rng.choice(WEATHER)}, "
            f"{hero} went to {away} and found {found}."
        ),
        rng.choice(
            [
                f'"What a fine {thing}!" said {hero}.',
                f'"I will keep this {thing}," said {hero}.',
                f'"Who lost this {thing}?" asked {hero}.',
            ]
        ),
        f"Then a {rng.choice(TRAITS)} {second} named {other} came along.",
        rng.choice(
            [
                f'"That is my {thing}," said {other}. "I lost it at {home}."',
                f'"Please, {hero}, may I have the {thing}?" asked {other}.',
                f'"I have looked for that {thing} all day," said {other}.',
            ]
        ),
        rng.choice(
            [
                f"{hero} gave the {thing} to {other}.",
                f"{hero} and {other} decided to share the {thing}.",
                f"{hero} thought about it and handed the {thing} back to {other}.",
            ]
        ),
        f"{other} was very {rng.choice(FEELINGS)}, and {hero} was {rng.choice(FEELINGS)} too.",
        f"From that day on, the {first} and the {second} were friends.",
        rng.choice(MORALS),
    ]
    question = rng.choice(
        [
            f"Tell me a story about {_an(first)}.",
            f"Tell me a story about {_an(first)} and {_an(second)}.",
            f"Tell me a story about {hero} the {first}.",
        ]
    )
    return Chat(question, " ".join(sentences))


def _facts(rng: random.Random) -> Chat:
    animal = rng.choice(ANIMALS)
    usual, rare = rng.sample(COLOURS, 2)
    place = rng.choice(PLACES)
    hours = rng.randint(2, 9)
    one = _an(animal)
    sentences = [
        f"The {animal} is an animal that lives near {place}.",
        f"It is usually {usual}, but some are {rare}.",
        f"{one.capitalize()} sleeps for {hours} hours and eats {rng.choice(FOODS)}.",
        rng.choice(
            [
                f"People say that {one} is {rng.choice(TRAITS)}.",
                f"Children like the {animal} because it is {rng.choice(TRAITS)}.",
            ]
        ),
    ]
    question = rng.choice([f"What is {one}?", f"Describe {one}.", f"Explain what {one} is."])
    return Chat(question, " ".join(sentences))


def _list(rng: random.Random) -> Chat:
    length = rng.randint(3, 6)
    kind, pool = rng.choice([("animals", ANIMALS), ("names", NAMES), ("colours", COLOURS)])
    items = rng.sample(pool, length)
    return Chat(f"List {length} {kind}.", "\n".join(f"{place}. {item}" for place, item in enumerate(items, 1)))


def _count(rng: random.Random) -> Chat:
    start = rng.randint(1, 60)
    end = start + rng.randint(8, 20)
    return Chat(f"Count from {start} to {end}.", ", ".join(str(number) for number in range(start, end + 1)) + ".")


def _repetition(rng: random.Random) -> Chat:
    sentences = re.split(r"(?<=[.!?]) ", _story(rng).answer)
    first = rng.randrange(len(sentences) - 3)
    text = " ".join(sentences[first : first + rng.randint(1, 3)])
    return Chat(f"Repeat this: {text}", text)


def _code(rng: random.Random) -> Chat:
    verb, many = rng.choice(VERBS), rng.choice(NOUNS)
    one = many[:-1]
    operator = rng.choice(["+", "*", "-"])
    number = rng.randint(1, 9)
    body = rng.choice(
        [
            (
                f"    result = []\n    for {one} in {many}:\n        result.append({one} {operator} {number})\n"
                "    return result"
            ),
            f"    total = 0\n    for {one} in {many}:\n        total += {one} {operator} {number}\n    return total",
            f"    return [{one} {operator} {number} for {one} in {many}]",
            f"    for {one} in {many}:\n        if {one} > {number}:\n            return {one}\n    return None",
        ]
    )
    return Chat(f"Write a function {verb}_{many} in Python.", f"```python\ndef {verb}_{many}({many}):\n{body}\n```")
