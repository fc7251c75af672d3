"""The mixes that come with the package."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import resources
from typing import Any, Final

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.material import MATERIALS, Material, material
from otel_specdecode.acceptance.prompt_shape import nearest, read_prompt
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.tiny_mix import tiny

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PLACE: Final = re.compile(rf"\{{({'|'.join(MATERIALS)}) (\d+)\}}")


def bundled(name: str) -> tuple[Prompt, ...]:
    """Return the prompts of a mix: `default`, or `tiny` for the tiny pair.

    Raises:
        AcceptanceError: There is none of this name.
        ModuleNotFoundError: The extra [acceptance] is not installed.
    """
    if name not in MIXES:
        raise AcceptanceError(f"there is no mix {name!r}{nearest(name, MIXES)}; the mixes are {', '.join(MIXES)}")
    return MIXES[name]()


@cache
def _of_file(name: str) -> tuple[Prompt, ...]:
    text = resources.files("otel_specdecode.acceptance").joinpath("mixes", f"{name}.toml").read_text(encoding="utf-8")
    return tuple(_prompt(entry) for entry in tomllib.loads(text)["prompts"])


def _prompt(entry: dict[str, Any]) -> Prompt:
    content = {key: value for key, value in entry.items() if key != "text"}
    content["messages"] = [{"role": "user", "content": _filled(entry["text"].strip(), entry["id"])}]
    if "json_schema" in entry.get("check", {}):
        content["check"] = {"json_schema": json.loads(entry["check"]["json_schema"])}
    findings: list[str] = []
    prompt = read_prompt(content, findings)
    if prompt is None:
        raise ValueError(f"{entry['id']}: {'; '.join(findings)}")
    return prompt


def _filled(text: str, seed: str) -> str:
    """Return a text with its places filled, each with another text."""
    kinds: dict[str, Material] = {kind: kind for kind in MATERIALS}
    return _PLACE.sub(lambda place: material(kinds[place[1]], int(place[2]), f"{seed}-{place.start()}"), text)


MIXES: Final[dict[str, Callable[[], tuple[Prompt, ...]]]] = {"default": partial(_of_file, "default"), "tiny": tiny}
"""Makes each mix, by its name."""
