"""The page loads nothing, shows what a folder holds as text, and can be read without colour or sight."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

pytest.importorskip("jinja2", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.report.charts import Chart, Series, svg
from otel_specdecode.acceptance.report.drawn import curves, left_out
from otel_specdecode.acceptance.report.page import page
from otel_specdecode.acceptance.report.wording import plain
from tests.acceptance.fakes import fake_run, prompts
from tests.acceptance.report.cases import WORLD, at_once, good_page, hostile_page, report_of

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}


class Reader(HTMLParser):
    """Collects tags and attributes, and tells tags that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def text() -> str:
    return good_page()


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    return Reader(text)


def test_it_loads_nothing_from_anywhere(text: str, read: Reader) -> None:
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    targets = [value for _, attributes in read.tags for name, value in attributes.items() if name in ("src", "href")]
    assert targets
    assert all(target.startswith("#") for target in targets)
    assert not re.search(r"https?://|@import", text)
    assert set(re.findall(r"url\((.)", text)) == {"#"}
    assert "default-src 'none'" in text


def test_its_tags_are_closed_and_no_id_stands_twice(read: Reader) -> None:
    assert (read.open, read.wrong) == ([], [])
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_every_reference_inside_the_page_leads_somewhere(text: str, read: Reader) -> None:
    ids = {attributes.get("id") for _, attributes in read.tags}
    wanted = set(re.findall(r'(?:href="#|url\(#|aria-labelledby=")([\w-]+)', text))
    assert wanted
    assert wanted <= ids


def test_its_charts_have_words_and_the_pages_colours(text: str) -> None:
    charts = re.findall(r'<svg class="chart".*?</svg>', text, re.DOTALL)
    assert len(charts) == 6 + 9
    for chart in charts:
        assert re.search(r'role="img" aria-label="[^"]{20,}"', chart)
        assert "var(--series-" in chart
        assert not re.search(r"(fill|stroke): #", chart)
        assert "font-family" not in chart
    defined = set(re.findall(r"(--[a-z]+-?\d*):", text))
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= defined | {"--tone", "--tone-ground", "--good-ground"} | {
        "--bad-ground",
        "--open-ground",
    }


def test_it_knows_dark_print_and_phones(text: str) -> None:
    for each in ("@media screen and (prefers-color-scheme: dark)", "@media print", "@media (max-width: 640px)"):
        assert each in text
    assert 'name="viewport"' in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_colours_have_contrast(text: str, scheme: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    colours = dict(re.findall(r"(--[\w-]+): (#\w{6})", light if scheme == "light" else dark))
    for ground in ("--ground", "--card"):
        for name in ("--ink", "--faint", "--good", "--bad", "--open"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for number in range(6):
            assert contrast(colours[f"--series-{number}"], colours[ground]) >= 3
    for tone in ("good", "bad", "open"):
        assert contrast(colours[f"--{tone}"], colours[f"--{tone}-ground"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""
    brighter, darker = sorted(map(luminance, (one, other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_the_folder_holds_is_text_and_nothing_else() -> None:
    text = hostile_page()
    read = Reader(text)
    assert "script" not in {tag for tag, _ in read.tags}
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert (read.open, read.wrong) == ([], [])


def test_no_users_name_is_on_the_page() -> None:
    text = hostile_page()
    assert "somebody" not in text
    assert "--model ~/" in text


def test_a_status_is_said_by_word_and_sign_not_by_colour_alone(text: str) -> None:
    states = re.findall(r'<span class="state \w+">(.) ([\w ]+)</span>', text)
    assert {("✓", "pass"), ("✓", "held"), ("?", "not measured"), ("✓", "holds")} <= set(states)


def test_each_way_to_run_has_a_line_and_the_rest_is_counted() -> None:
    drafts = ["", *(f"d{number}" for number in range(7))]
    arms = (Arm(0), *(Arm(k, draft) for draft in drafts for k in (2, 4)))
    rows = report_of(fake_run(arms, prompts(2, max_tokens=16), WORLD)).arms
    assert [series.name for series in curves(rows)[0].series] == ["speculative", *drafts[1:]]
    assert left_out(rows) == 2


@pytest.mark.parametrize(
    ("levels", "names", "marked"),
    [
        ((2,), ["c=2"], {"k=4 c=2": "fastest"}),
        (
            (1, 2, 4),
            ["speculative", "c=2", "c=4"],
            {"k=4": "fastest", "k=4 c=2": "fastest of 2 at once", "k=4 c=4": "fastest of 4 at once"},
        ),
    ],
)
def test_several_requests_at_once_have_lines_and_a_best_arm_of_their_own(
    levels: tuple[int, ...], names: list[str], marked: dict[str, str]
) -> None:
    report = report_of(at_once(*levels))
    for chart in curves(report.arms):
        assert [series.name for series in chart.series] == names
        assert chart.known == tuple(chart.series)
    text = page(report)
    read = Reader(text)
    assert (read.open, read.wrong) == ([], [])
    assert not re.search(r"https?://|@import|<script", text)
    found = set(re.findall(r'<tr class="best"><th scope="row">(.*?)\s*<span class="ends">(.*?)</span>', text))
    assert found == set(marked.items())


def test_a_chart_says_its_points_in_words() -> None:
    chart = Chart("Speed", "k", "tokens/s", [Series("a<b", [0, 1], [10.0, None])], plain, ticks=[(0, "AR"), (1, "2")])
    assert chart.in_words == "Speed, tokens/s over k. a<b: 10.0 at AR."
    assert 'aria-label="Speed, tokens/s over k. a&lt;b: 10.0 at AR."' in svg(chart, "c")
    assert replace(chart, series=[Series("a", [0], [None])]).in_words == "Speed: not measured."


def test_a_chart_is_the_same_each_time_and_its_ids_are_its_own() -> None:
    chart = Chart("Speed $x$", "k", "tokens/s", [Series("漢字 $a$ \x07", [0, 1], [10.0, 2.0])], plain)
    assert svg(chart, "one") == svg(chart, "one")
    first, second = (set(re.findall(r'id="([^"]+)"', svg(chart, key))) for key in ("one", "two"))
    assert first
    assert not first & second
