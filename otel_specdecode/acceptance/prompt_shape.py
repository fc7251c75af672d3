"""Holds what was read against what a prompt may be, and finds all that does not fit. No finding quotes a prompt."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar, get_args

from otel_specdecode.acceptance.checks import regex_fault, schema_fault
from otel_specdecode.acceptance.prompts import Check, Prompt, Tier
from otel_specdecode.acceptance.records import Kind
from otel_specdecode.identity.canonical import canonical_json

KEYS: Final = ("id", "tier", "kind", "prompt", "messages", "max_tokens", "weight", "check")
ROLES: Final = ("system", "user", "assistant", "tool")
MOST_TOKENS: Final = 131_072
MOST_WEIGHT: Final = 1_000_000_000

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,127}")
_WORD: Final = re.compile(r"[A-Za-z0-9$_-]{1,32}")
_HALF: Final = re.compile("[\ud800-\udfff]")

Choice = TypeVar("Choice", bound=str)


def read_prompt(content: object, findings: list[str]) -> Prompt | None:
    """Return a prompt, or None if anything in it is wrong.

    Args:
        content: What was read.
        findings: What is wrong is added here, each in one line.

    Raises:
        ModuleNotFoundError: It has a JSON schema, and the extra [acceptance] is not installed.
    """
    if not isinstance(content, dict):
        findings.append(f"a prompt must be an object in {{ }}, not {shown(content)}")
        return None
    before = len(findings)
    _unknown(content, KEYS, "a prompt", findings)
    text, messages = _asked(content, findings)
    prompt = Prompt(
        id=_id(content, findings),
        text=text,
        messages=messages,
        tier=_choice(content, "tier", get_args(Tier), "short", findings),
        kind=_choice(content, "kind", get_args(Kind), "other", findings),
        max_tokens=_max_tokens(content, findings),
        weight=_weight(content, findings),
        check=_check(content, findings),
    )
    return prompt if len(findings) == before else None


def written(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt as it stands in a file, so that read_prompt() gives it back."""
    asked = {"prompt": prompt.text} if prompt.messages is None else {"messages": list(prompt.messages)}
    content: dict[str, Any] = {"id": prompt.id, "tier": prompt.tier, "kind": prompt.kind, **asked}
    content |= {"max_tokens": prompt.max_tokens, "weight": prompt.weight}
    if prompt.check is not None:
        kinds = ("regex", "json_schema", "exact")
        content["check"] = {
            kind: getattr(prompt.check, kind) for kind in kinds if getattr(prompt.check, kind) is not None
        }
    return content


def shown(value: object) -> str:
    """Return a value as JSON has it, but of a text only a single short word: a longer one may be a prompt."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value) if abs(value) < 1e15 else "so large a number"
    if isinstance(value, str):
        return json.dumps(value) if _WORD.fullmatch(value) else "that text"
    return "an object" if isinstance(value, dict) else "a list"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for what a name may have been meant to be, or nothing."""
    close = difflib.get_close_matches(name[:32].lower(), known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _unknown(content: dict[str, Any], keys: tuple[str, ...], what: str, findings: list[str]) -> None:
    for key in content:
        if key not in keys:
            name = f"no key {key}" if _WORD.fullmatch(key) else "no such key as one of these"
            findings.append(f"{what} has {name}{nearest(key, keys) or '; its keys are ' + ', '.join(keys)}")


def _id(content: dict[str, Any], findings: list[str]) -> str:
    value = content.get("id")
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    if "id" not in content:
        findings.append("id is missing: give each prompt one of its own")
    elif not isinstance(value, str):
        findings.append(f"id must be a text in quotes, not {shown(value)}")
    else:
        findings.append("id must be 1 to 128 letters, digits and . _ : / # -, and begin with a letter or digit")
    return ""


def _choice(
    content: dict[str, Any], key: str, choices: tuple[Choice, ...], default: Choice, findings: list[str]
) -> Choice:
    value = content.get(key, default)
    if value in choices:
        return choices[choices.index(value)]
    meant = nearest(value, choices) if isinstance(value, str) else ""
    findings.append(f"{key} must be one of {', '.join(map(json.dumps, choices))}, not {shown(value)}{meant}")
    return default


def _max_tokens(content: dict[str, Any], findings: list[str]) -> int:
    value = content.get("max_tokens", 128)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_TOKENS:
        return value
    findings.append(f"max_tokens must be a whole number from 1 to {MOST_TOKENS}, not {shown(value)}")
    return 1


def _weight(content: dict[str, Any], findings: list[str]) -> float:
    value = content.get("weight", 1.0)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MOST_WEIGHT:
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        findings.append("weight must be finite")
    else:
        findings.append(f"weight must be a number above 0 and up to {MOST_WEIGHT}, not {shown(value)}")
    return 1.0


def _asked(content: dict[str, Any], findings: list[str]) -> tuple[str | None, tuple[dict[str, str], ...] | None]:
    """Return the prompt's text, or its messages."""
    given = [key for key in ("prompt", "messages") if key in content]
    if len(given) != 1:
        findings.append("a prompt has either prompt or messages" + (", not both" if given else ": both are missing"))
        return None, None
    if given == ["prompt"]:
        return _text(content["prompt"], "prompt", findings), None
    turns = content["messages"]
    if not isinstance(turns, list) or not turns:
        findings.append(f"messages must be a list of turns, not {'an empty one' if turns == [] else shown(turns)}")
        return None, None
    messages = tuple(_turn(turn, f"messages[{place}]", findings) for place, turn in enumerate(turns))
    if messages[-1].get("role") == "assistant":
        findings.append("messages must not end with a turn of the assistant: the model is to give the answer")
    return None, messages


def _turn(turn: object, name: str, findings: list[str]) -> dict[str, str]:
    if not isinstance(turn, dict):
        findings.append(f'{name} must be {{"role": ..., "content": ...}}, not {shown(turn)}')
        return {}
    _unknown(turn, ("role", "content"), name, findings)
    role = turn.get("role")
    if role not in ROLES:
        meant = nearest(role, ROLES) if isinstance(role, str) else ""
        said = f", not {shown(role)}{meant}" if "role" in turn else ": it is missing"
        findings.append(f"{name}.role must be one of {', '.join(map(json.dumps, ROLES))}{said}")
    text = _text(turn.get("content"), f"{name}.content", findings)
    return {"role": str(role), "content": text or ""}


def _text(value: object, name: str, findings: list[str]) -> str | None:
    if not isinstance(value, str):
        findings.append(f"{name} must be a text in quotes, not {shown(value)}")
    elif not value.strip():
        findings.append(f"{name} must not be empty")
    elif _HALF.search(value):
        findings.append(f"{name} has half of a character: a \\ud... without its other half")
    else:
        return value
    return None


def _check(content: dict[str, Any], findings: list[str]) -> Check | None:
    check = content.get("check")
    if check is None:
        return None
    kinds = ("regex", "json_schema", "exact")
    if not isinstance(check, dict):
        findings.append(f"check must be an object with one of {', '.join(kinds)}, not {shown(check)}")
        return None
    _unknown(check, kinds, "check", findings)
    given = [kind for kind in kinds if kind in check]
    if len(given) != 1:
        findings.append(f"check must have one of {', '.join(kinds)}, not {len(given) or 'none'}")
        return None
    if given == ["json_schema"]:
        schema = _schema(check["json_schema"], findings)
        return None if schema is None else Check(json_schema=schema)
    text = _text(check[given[0]], f"check.{given[0]}", findings)
    fault = regex_fault(text) if text is not None and given == ["regex"] else None
    if fault is not None:
        findings.append(f"check.regex {fault}")
    if text is None:
        return None
    return Check(regex=text) if given == ["regex"] else Check(exact=text)


def _schema(value: object, findings: list[str]) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        findings.append(f"check.json_schema must be an object in {{ }}, not {shown(value)}")
        return None
    try:
        canonical_json(value)
        if _HALF.search(json.dumps(value, ensure_ascii=False)):
            raise ValueError("has half of a character: a \\ud... without its other half")
    except ValueError as error:
        findings.append(f"check.json_schema {error}")
        return None
    fault = schema_fault(value)
    if fault is not None:
        findings.append(f"check.json_schema {fault}")
    return value
