"""Whether an answer is what its prompt's check asks for."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from otel_specdecode.acceptance.prompts import Check

LONGEST_ANSWER: Final = 20_000
"""Characters that a check reads at most; a longer answer fails it. Python's regular expressions cannot be given a time
limit: a pattern such as `(a+)+$` can take forever on a short text, and is the prompt file's own fault."""

_FENCE: Final = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def passes(check: Check, answer: str) -> bool:
    """Return whether an answer is what a check asks for.

    JSON may stand alone or in a fence of three backticks, which is named `json` or is all that the answer has. Anything
    else beside it is as wrong as it would be to a program that reads the answer.

    Raises:
        ModuleNotFoundError: The check has a JSON schema, and the extra [acceptance] is not installed.
    """
    if len(answer) > LONGEST_ANSWER:
        return False
    if check.exact is not None:
        return answer.strip() == check.exact.strip()
    if check.regex is not None:
        return _compiled(check.regex).search(answer) is not None
    return check.json_schema is not None and _allows(check.json_schema, answer)


def regex_fault(pattern: str) -> str | None:
    """Return what is wrong with a regular expression, None if nothing is."""
    try:
        _compiled(pattern)
    except re.error as error:
        place = "" if error.pos is None else f" at character {error.pos + 1}"
        return f"does not compile{place}"
    except (OverflowError, RecursionError, ValueError):
        return "does not compile: it is too large"
    return None


def schema_fault(schema: dict[str, Any]) -> str | None:
    """Return what is wrong with a JSON schema, None if nothing is.

    Raises:
        ModuleNotFoundError: The extra [acceptance] is not installed.
    """
    import jsonschema

    if not isinstance(schema.get("$schema", ""), str):
        return "is no JSON schema: $schema must be a text"
    try:
        validator = _validator(schema)
        validator.check_schema(schema)
        _follow(schema)
        validator.is_valid(None)
    except jsonschema.SchemaError as error:
        return f"is no JSON schema: {error.json_path} breaks the rule {error.validator!r} of its draft"
    except RecursionError:
        return "is no JSON schema that can be followed: it refers to itself without end, or is nested too deeply"
    except Exception:  # what a schema refers to is looked up by code that lets all sorts of errors out
        return "is no JSON schema that can be followed: all that it refers to must be in it"
    return None


def _allows(schema: dict[str, Any], answer: str) -> bool:
    try:
        document = json.loads(_unfenced(answer), parse_constant=_refuse)
        return bool(_validator(schema).is_valid(document))
    except Exception:  # a schema that was checked may still lead to what its library cannot do; the text is an answer's
        return False


def _unfenced(answer: str) -> str:
    fences = list(_FENCE.finditer(answer))
    named = next((each for each in fences if each[1].lower() == "json"), None)
    if named is not None:
        return named[2]
    alone = fences[0] if len(fences) == 1 and not fences[0][1] and fences[0][0] == answer.strip() else None
    return answer if alone is None else alone[2]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _validator(schema: dict[str, Any]) -> Any:
    """Return a validator that never reads from the network what a schema refers to."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    return validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())


def _follow(schema: dict[str, Any]) -> None:
    """Raise for a reference that leads out of a schema, or nowhere."""
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry[Any]().resolver_with_root(root)
    for reference in _references(schema):
        found = resolver.lookup(reference).contents
        if isinstance(found, dict):  # under a keyword that is unknown, nothing else has looked at it
            _validator(found).check_schema(found)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        values = (schema.get(key) for key in ("$ref", "$dynamicRef", "$recursiveRef"))
        yield from (value for value in values if isinstance(value, str))
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a pattern may mean in a later Python
        return re.compile(pattern)
