"""The bundled mix `tiny`: what the tiny pair was trained to answer, so that it answers some of it rightly.

Its prompts are chats of at most 600 tokens of its own vocabulary, and all of tier short. The pair ends an answer by
itself after 10 to 125 tokens. Only after two or more stories in one talk, which is longer than anything that it was
trained on, does it go on for longer: those prompts are there for figures that need an answer of 128 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Final

from otel_specdecode.acceptance.prompts import Check, Prompt
from otel_specdecode.acceptance.records import Kind
from otel_specdecode.tiny_pair.training.corpus import fables

_FOX: Final = "Tell me a story about a fox."
_OWL: Final = "Tell me a story about an owl and a crab."

_TALKS: Final = (
    *((2, 6, _OWL), (2, 9, _FOX), (2, 16, _FOX), (3, 5, _OWL)),
    *((3, 15, _OWL), (4, 1, _FOX), (4, 4, _OWL), (4, 5, _FOX)),
)
"""Stories that were told before, the seed of their grammar, and the question; each answer has 142 to 170 tokens."""

_ANIMAL_OBJECT: Final = {"type": "object", "required": ["name"], "properties": {"name": {"const": "fox"}}}


@cache
def tiny() -> tuple[Prompt, ...]:
    """Return the prompts."""
    return (*_code(), *_facts(), *_lists(), *_repetitions(), *_stories(), *_talks())


def _ask(id_: str, kind: Kind, question: str, max_tokens: int, check: Check | None = None) -> Prompt:
    return Prompt(id_, messages=(_turn("user", question),), kind=kind, max_tokens=max_tokens, check=check)


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _code() -> Iterator[Prompt]:
    """Yield functions to write, whose names and arguments it gets right."""
    for verb, many in (("scale", "rows"), ("find", "names"), ("count", "words"), ("merge", "points")):
        check = Check(regex=rf"def {verb}_{many}\({many}\):\n    \w")
        yield _ask(f"code-{verb}-{many}", "code", f"Write a function {verb}_{many} in Python.", 96, check)


def _facts() -> Iterator[Prompt]:
    """Yield animals to describe in short, and one question outside of all that it knows."""
    for animal, question in (
        ("crab", "What is a crab?"),
        ("owl", "Explain what an owl is."),
        ("goat", "Describe a goat."),
    ):
        check = Check(regex=f"The {animal} is an animal that lives near [a-z ]+[.]")
        yield _ask(f"summary-{animal}", "summary", question, 96, check)
    yield _ask("summary-sky", "summary", "Why is the sky blue?", 96, Check(regex="(?i)light"))


def _lists() -> Iterator[Prompt]:
    """Yield answers of a form: lists of which it gets the form right, and two forms that it does not know."""
    for count, what in ((5, "animals"), (6, "colours")):
        check = Check(regex=rf"\A1\. \w+(\n\d\. \w+){{{count - 1}}}\Z")
        yield _ask(f"list-{what}", "json_tool", f"List {count} {what}.", 64, check)
    question = "Return a JSON object with the key name and the value fox."
    yield _ask("list-json", "json_tool", question, 64, Check(json_schema=_ANIMAL_OBJECT))
    yield _ask("list-twenty", "json_tool", "List 20 animals.", 128, Check(regex=r"\n20\. \w+"))


def _repetitions() -> Iterator[Prompt]:
    """Yield texts and rows of numbers to carry over: those that it gets exactly right, and three that it does not."""
    for name, text in (
        ("kite", "Finn gave the blue kite to Hana."),
        ("map", '"Who lost this old map?" asked Bo.'),
        ("coat", '"I have looked for that warm coat all day," said Finn.'),
        ("goat", "Then a kind goat named Otto came along."),
        ("key", "Gus and Tess decided to share the silver key. Tess was very calm, and Gus was glad too."),
    ):
        yield _ask(f"repeat-{name}", "translation", f"Repeat this: {text}", 64, Check(exact=text))
    for first, last in ((1, 21), (22, 40), (7, 22)):
        row = ", ".join(str(number) for number in range(first, last + 1))
        question = f"Count from {first} to {last}."
        yield _ask(f"count-{first}-{last}", "translation", question, 96, Check(exact=f"{row}."))


def _stories() -> Iterator[Prompt]:
    """Yield stories to tell, about who was asked for."""
    for name, animal in (("Nora", "mouse"), ("Finn", "bear")):
        question = f"Tell me a story about {name} the {animal}."
        yield _ask(f"story-{name.lower()}", "other", question, 160, Check(regex=f"{animal} named {name}[.]"))
    yield _ask("story-hen", "other", "Tell me a story about a hen and a wolf.", 160, Check(regex="a wolf named"))


def _talks() -> Iterator[Prompt]:
    for told, seed, question in _TALKS:
        chats = (chat for chat in fables(64, seed) if chat.question.startswith("Tell"))
        turns = [
            turn
            for chat in islice(chats, told)
            for turn in (_turn("user", chat.question), _turn("assistant", chat.answer))
        ]
        yield Prompt(f"talk-{told}-{seed}", messages=(*turns, _turn("user", question)), kind="other", max_tokens=192)
