"""`report` and `compare` from a shell: files whole or not at all, a run's own files left alone, plain errors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from click.testing import CliRunner, Result

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.report.report_commands import compare, report
from otel_specdecode.acceptance.report.writing import EVIDENCE, write_all
from tests.acceptance.report.cases import soak, sweep, written


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(sweep(), tmp_path_factory.mktemp("runs") / "sweep")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(soak(), tmp_path_factory.mktemp("runs") / "soak")


def call(command, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments])


def test_all_formats_are_written_and_the_headline_is_printed(run: Path, beside: Path, tmp_path: Path) -> None:
    names = {"-o": "r.html", "--json": "r.json", "--csv": "r.csv", "--markdown": "r.md", "--badge": "r.svg"}
    asked = [part for option, name in names.items() for part in (option, tmp_path / name)]
    done = call(report, run, "--soak", beside, *asked, "--hourly-rate", "0.12")
    assert done.exit_code == 0, done.output
    assert {each.name for each in tmp_path.iterdir()} == set(names.values())
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["headline"]["text"] in done.output
    digest = hashlib.sha256(b"".join((run / name).read_bytes() for name in EVIDENCE)).hexdigest()
    assert document["runs"][0]["evidence_sha256"] == digest
    assert digest in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert document["verdict"]["soak_id"] == "fake-soak"
    assert document["verdict"]["preset"] == "balanced"


def test_an_older_report_is_replaced(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    page.write_text("old")
    assert call(report, run, "-o", page).exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_runs_own_file_is_never_replaced(run: Path, tmp_path: Path) -> None:
    before = (run / "results.jsonl").read_bytes()
    done = call(report, run, "-o", tmp_path / "r.html", "--json", run / "results.jsonl")
    assert done.exit_code == 1
    assert "is a file of the run" in done.output
    assert (run / "results.jsonl").read_bytes() == before
    assert not list(tmp_path.iterdir())


def test_one_file_for_two_formats_is_refused(run: Path, tmp_path: Path) -> None:
    done = call(report, run, "-o", tmp_path / "r", "--json", tmp_path / "r")
    assert (done.exit_code, list(tmp_path.iterdir())) == (1, [])


def test_a_place_that_does_not_exist_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("old")
    with pytest.raises(AcceptanceError, match="name another file"):
        write_all({kept: "new", tmp_path / "nowhere" / "r.json": "{}"})
    assert (kept.read_text(), len(list(tmp_path.iterdir()))) == ("old", 1)


def test_a_folder_in_the_files_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "r.html").mkdir()
    with pytest.raises(AcceptanceError, match=r"r\.html cannot be written"):
        write_all({tmp_path / "r.html": "new"})
    assert [each.name for each in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "nowhere.toml"], "nowhere.toml"),
        (["--soak", "nowhere"], "holds no run"),
        (["--arm", "k=9"], 'no speculative arm "k=9"'),
    ],
)
def test_what_cannot_be_used_is_told(run: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = call(report, run, "-o", tmp_path / "r.html", *arguments)
    assert done.exit_code == 1
    assert said in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--rented-rate", "1"], ["--hourly-rate", "0"], ["--hourly-rate", "nan"]])
def test_rates_that_make_no_sense_are_refused(run: Path, arguments: list[str]) -> None:
    assert call(report, run, *arguments).exit_code == 2


def test_a_headline_that_is_refused_says_what_is_missing(tmp_path: Path) -> None:
    blind = replace(sweep(), results=tuple(replace(each, peak_rss=None) for each in sweep().results))
    done = call(report, written(blind, tmp_path / "run"), "-o", tmp_path / "r.html")
    assert done.exit_code == 0
    assert "no headline: missing memory" in done.output
    assert "No headline: missing memory." in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_two_runs_are_compared_and_written(run: Path, tmp_path: Path) -> None:
    done = call(compare, run, run, "--json", tmp_path / "c.json", "--markdown", tmp_path / "c.md")
    assert done.exit_code == 0, done.output
    assert "Second over first" in done.output
    assert [arm["speed"]["value"] for arm in json.loads((tmp_path / "c.json").read_text())["arms"]] == pytest.approx(
        [1, 1, 1]
    )
    assert (tmp_path / "c.md").read_text().startswith("## fake-sweep (llama")


def test_another_manifest_ends_with_what_differs(run: Path, tmp_path: Path) -> None:
    head = replace(sweep().head, manifest={**sweep().head.manifest, "engine": {"name": "fake", "version": "2"}})
    other = written(replace(sweep(), head=head), tmp_path / "other")
    done = call(compare, run, other)
    assert done.exit_code == 1
    assert "engine.version: 1, and 2" in done.output
    assert call(compare, run, other, "--anyway").exit_code == 0


def test_a_comparison_replaces_no_file_of_a_run(run: Path) -> None:
    before = (run / "run.json").read_bytes()
    done = call(compare, run, run, "--json", run / "run.json")
    assert done.exit_code == 1
    assert "is a file of a run" in done.output
    assert (run / "run.json").read_bytes() == before


def test_a_link_is_followed_and_a_device_is_left(tmp_path: Path) -> None:
    (tmp_path / "latest.html").symlink_to(tmp_path / "page.html")
    write_all({tmp_path / "latest.html": "text"})
    assert (tmp_path / "latest.html").is_symlink()
    assert (tmp_path / "page.html").read_text() == "text"
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(AcceptanceError, match="it is no file that can be replaced"):
        write_all({tmp_path / "null": "text"})


def test_a_disk_that_may_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(AcceptanceError, match=r"r\.html cannot be written: Read-only file system"):
        write_all({tmp_path / "r.html": "text"})
