"""Links between pages lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, anchors, links, text_of

pytestmark = pytest.mark.source

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for path, anchor in links(text_of(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and (target.suffix != ".md" or anchor not in anchors(text_of(target)))):
            found.append(f"{path}#{anchor}" if anchor else path)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_into_the_repository_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One, two\n\n```sh\n# no heading\n```\n\n# One two\n\n## [A](b) `c`: d_e?\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#one-two) [c](other.md#one-two-1) [d](other.md#a-c-d_e) [e](#here) <https://x.y>\n"
        "[f](gone.md) [g](other.md#no-heading) [h](https://x.y#z) `[i](code.md)`\n\n# Here\n"
    )
    assert broken(page) == ["gone.md", "other.md#no-heading"]
