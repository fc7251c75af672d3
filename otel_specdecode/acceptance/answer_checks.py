"""Checks for answers in plain words: any sensible phrasing of the right answer passes, others do not.

A person says "42", "**42**", "The answer is 42." or "17 + 25 = 42". So an answer is right where the first or the last
of what could be the answer is the right one. An echo of the question is refused as long as the question does not begin
or end with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from otel_specdecode.acceptance.prompts import Check

UNITS: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NAMED: Final = "|".join((*UNITS[2:], *TENS))
_NO_NUMBER: Final = rf"(?:(?!\d|\b(?:{_NAMED})\b).)*"
"""Text without a number. "One" is none: it is a pronoun too."""


def in_words(number: int) -> str:
    """Return a number from 0 to 99 in English words."""
    tens, units = divmod(number, 10)
    if number < len(UNITS):
        return UNITS[number]
    return TENS[tens - 2] + (f"-{UNITS[units]}" if units else "")


def number_check(right: int, *, words: bool = True) -> Check:
    """Return a check for a whole number from 2 on: in digits or, up to 99 and unless told not to, in words."""
    either = rf"(?<![\w.,-]){right}(?:\.0+)?(?!\w|[.,]\d)"
    if words and right < 100:
        either += rf"|(?<!ty[- ])\b{in_words(right).replace('-', '[- ]')}\b(?![- ](?:{'|'.join(UNITS[1:10])})\b)"
    return Check(regex=rf"(?is)\A(?:{_NO_NUMBER}(?:{either})|.*(?:{either}){_NO_NUMBER}\Z)")


def choice_check(right: str, others: Iterable[str]) -> Check:
    """Return a check for one of several words."""
    other = "|".join(re.escape(each) for each in others)
    found = rf"\b{re.escape(right)}\b"
    rest = rf"(?:(?!\b(?:{other})\b).)*"
    return Check(regex=rf"(?is)\A(?:{rest}{found}|.*{found}{rest}\Z)")


def sequence_check(right: Iterable[str]) -> Check:
    """Return a check for words or numbers of two digits and more, one after the other and nothing else between them.

    They may stand in one line or in a numbered list.
    """
    between = r"(?:[^\w]|\band\b|\b\d[.)])+"
    return Check(regex=rf"(?i)(?<!\w){between.join(re.escape(each) for each in right)}(?!\w)")


def phrase_check(right: str) -> Check:
    """Return a check for some text, in which spaces may be of any width or absent around signs."""
    parts = re.findall(r"\w+|[^\w\s]", right)
    pattern = re.escape(parts[0])
    for before, part in pairwise(parts):
        both_words = before[-1].isalnum() and part[0].isalnum()
        pattern += (r"\s+" if both_words else r"\s*") + re.escape(part)
    end = r"(?!\w)" if parts[-1][-1].isalnum() else ""
    return Check(regex=rf"(?i)(?<!\w){pattern}{end}")


def facts_check(facts: Iterable[str], longest: int) -> Check:
    """Return a check for a sentence of at most so many characters that has all the facts."""
    looked = "".join(rf"(?=.*\b{re.escape(fact)}\b)" for fact in facts)
    return Check(regex=rf"(?is)\A{looked}.{{1,{longest}}}\Z")


def document_check(right: Any) -> Check:
    """Return a check for one JSON document, whose texts may begin with a capital letter."""
    return Check(json_schema=_schema(right))


def _schema(right: Any) -> dict[str, Any]:
    if isinstance(right, dict):
        properties = {key: _schema(value) for key, value in right.items()}
        return {"type": "object", "required": [*right], "properties": properties, "additionalProperties": False}
    if isinstance(right, list):
        items = [_schema(each) for each in right]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    return {"enum": [right, right.capitalize()]} if isinstance(right, str) else {"const": right}
