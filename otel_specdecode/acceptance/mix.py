"""The mixes that come with the package."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib import resources
from typing import Any, Final

from otel_specdecode.acceptance.checked_mix import checked
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.material import MATERIALS, Material, material
from otel_specdecode.acceptance.prompt_files import read_prompts
from otel_specdecode.acceptance.prompt_shape import nearest, read_prompt
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.tiny_mix import tiny
from otel_specdecode.user_files import StrPath

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PLACE: Final = re.compile(rf"\{{({'|'.join(MATERIALS)}) (\d+)\}}")


def bundled(name: str) -> tuple[Prompt, ...]:
    """Return the prompts of a mix: `default`, `checked`, or `tiny` for the tiny pair.

    Raises:
        AcceptanceError: There is none of this name.
        ModuleNotFoundError: The extra [acceptance] is not installed.
    """
    if name not in MIXES:
        raise AcceptanceError(f"there is no mix {name!r}{nearest(name, MIXES)}; the mixes are {', '.join(MIXES)}")
    return MIXES[name]()


def gathered(files: Sequence[StrPath], mixes: Iterable[str]) -> tuple[Prompt, ...]:
    """Return the prompts of files and of mixes together.

    Raises:
        AcceptanceError: A file cannot be used, there is no such mix, or a prompt of both has the same id.
        ModuleNotFoundError: The extra [acceptance] is not installed.
    """
    own = read_prompts(files)
    taken = {prompt.id for prompt in own}
    found = [prompt for name in dict.fromkeys(mixes) for prompt in bundled(name)]
    twice = next((prompt.id for prompt in found if prompt.id in taken), None)
    if twice is not None:
        raise AcceptanceError(
            f"id {twice} is in a prompt file and in a mix: rename it in the file, or leave out the mix"
        )
    return (*own, *found)


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


MIXES: Final[dict[str, Callable[[], tuple[Prompt, ...]]]] = {
    "default": partial(_of_file, "default"),
    "tiny": tiny,
    "checked": checked,
}
"""Makes each mix, by its name."""
