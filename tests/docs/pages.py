"""The pages that people read, and what a reader finds on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2 *$", re.DOTALL | re.MULTILINE)


def text_of(page: Path) -> str:
    """Return what a page says."""
    return page.read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Return a page without its blocks of code, in which `#` begins a comment and `*` multiplies."""
    return _FENCE.sub("", text)


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of code in a language."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
    return [code for _, code in found]


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of all tables between a heading and the next one, head rows and rulers left out."""
    _, _, rest = text.partition(f"\n{heading}\n")
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rulers = {number for number, line in enumerate(lines) if set(line) <= set("|-: ")}
    body = (line for number, line in enumerate(lines) if number not in rulers and number + 1 not in rulers)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        numbered = (f"{name}-{number}" for number in range(1, len(found) + 2))
        found.add(name if name not in found else next(each for each in numbered if each not in found))
    return found


def links(text: str) -> Iterator[tuple[str, str]]:
    """Return the links of a page that lead into this repository: path, and anchor if there is one."""
    without_code = re.sub(r"`[^`\n]*`", "", prose(text))
    for target in re.findall(r"\]\(\s*<?([^)\s>]+)", without_code):
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor
