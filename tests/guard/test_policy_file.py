"""Policy files: what is read, and what is said of one that cannot be used."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

msgspec = pytest.importorskip("msgspec", reason="needs the [guard] extra")

from otel_specdecode.guard.policy import Policy, Trigger  # noqa: E402
from otel_specdecode.guard.policy_file import PolicyFile, policy_in_code, read_policy  # noqa: E402
from otel_specdecode.guard.policy_text import default_policy_text  # noqa: E402
from otel_specdecode.guard.toml_file import MOST_BYTES, PolicyError  # noqa: E402
from tests.guard.broken_policies import RULES, SHAPES, TEXTS  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str | bytes) -> PolicyFile:
    """The policy of a file in the current folder."""
    Path("policy.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_policy("policy.toml")


def refused(path: str = "policy.toml") -> tuple[str, ...]:
    with pytest.raises(PolicyError) as caught:
        read_policy(path)
    assert str(caught.value) == "\n".join(caught.value.lines)
    return caught.value.lines


@pytest.mark.parametrize(("text", "told"), [*SHAPES, *RULES, *TEXTS])
def test_what_is_wrong_is_said_once_with_its_line(folder: Path, text: str, told: str) -> None:
    Path("policy.toml").write_text(text, encoding="utf-8")
    marked = text[: text.index("#!")].count("\n") + 1
    (line,) = refused()
    assert line.startswith(f"policy.toml:{marked}: ")
    assert told in line


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_file(folder: Path) -> None:
    first = "mode = 1\n[ladder]\nlengths = [0, 99]\n"
    Path("policy.toml").write_text(first + "[triggers.queue]\nabove = -1\nwindow = 1\n[triggers.speedup]\nabove = 1\n")
    told = [line.split(" ")[:2] for line in refused()]
    assert told == [
        ["policy.toml:1:", "mode"],
        ["policy.toml:3:", "ladder.lengths[0]"],
        ["policy.toml:3:", "ladder.lengths[1]"],
        ["policy.toml:6:", "[triggers.queue]"],
        ["policy.toml:8:", "triggers.speedup"],
    ]


def test_an_empty_file_is_the_default_policy(folder: Path) -> None:
    assert read("").policy == Policy()


def test_what_a_policy_says_is_read_and_the_rest_is_the_defaults(folder: Path) -> None:
    policy = read('mode = "enforce"\n[windows]\nrounds = 50\n[probe]\ndwell = 60\n').policy
    assert (policy.mode, policy.windows.rounds, policy.windows.requests) == ("enforce", 50, 20)
    assert repr(policy.probe.dwell) == "60.0"
    assert policy.triggers == Policy().triggers


def test_a_policy_with_triggers_has_only_those(folder: Path) -> None:
    policy = read('[triggers.low]\nmeasure = "accept_rate"\nbelow = { 1 = 0.5, 2 = 0.4 }\naction = "unload"').policy
    assert policy.triggers == {"low": Trigger(measure="accept_rate", below={"1": 0.5, "2": 0.4}, action="unload")}


def test_a_ladder_may_have_no_shorter_draft(folder: Path) -> None:
    assert read("ladder.lengths = []").policy.ladder.lengths == ()


def test_lines_may_end_as_on_windows(folder: Path) -> None:
    assert read(b"[windows]\r\nrounds = 50\r\n").policy.windows.rounds == 50
    Path("policy.toml").write_bytes(b"[windows]\r\n\r\nrounds = 0\r\n")
    assert refused()[0].startswith("policy.toml:3: ")


def test_paths_start_from_the_policys_folder(folder: Path) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "usual.json").write_text("{}")
    (folder / "etc" / "policy.toml").write_text(
        'flag_file = "flag"\n[baseline]\nsource = "file"\nfile = "usual.json"\n[audit]\nfolder = "/var/audit"\n'
    )
    found = read_policy("etc/policy.toml")
    assert found.flag_file == folder / "etc" / "flag"
    assert found.baseline_file == folder / "etc" / "usual.json"
    assert found.audit_folder == Path("/var/audit")


def test_a_policy_behind_a_link_has_the_folder_of_the_link(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "policy.toml").write_text('flag_file = "flag"')
    (folder / "policy.toml").symlink_to("data/policy.toml")
    assert read_policy("policy.toml").flag_file == folder / "flag"


def test_paths_that_are_not_set_are_none(folder: Path) -> None:
    found = read("")
    assert (found.flag_file, found.baseline_file, found.audit_folder) == (None, None, None)


def test_a_file_that_is_not_there_is_told_with_how_to_make_one(folder: Path) -> None:
    assert refused("gone.toml") == (
        "gone.toml:1: there is no such file: `otel-specdecode guard init --output FILE` writes one",
    )


def test_a_folder_is_no_policy(folder: Path) -> None:
    assert refused(".") == (".:1: this is a folder: name a policy file in it",)


def test_a_pipe_is_no_policy_and_is_not_waited_for(folder: Path) -> None:
    os.mkfifo("pipe")
    assert refused("pipe") == ("pipe:1: this is no file: name a policy file",)


def test_a_file_that_may_not_be_read_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("otel_specdecode.guard.policy_file.os.stat", stat)
    assert refused("policy.toml") == ("policy.toml:1: this user may not read it: give it the permission",)


@pytest.mark.parametrize(("name", "shown"), [("a\0b", r"a\x00b"), ("a\nb", r"a\nb"), ("x" * 300, "x" * 300)])
def test_a_name_that_no_file_has_is_told_on_one_line(folder: Path, name: str, shown: str) -> None:
    (line,) = refused(name)
    assert line.startswith(f"{shown}:1: ")
    assert line.isprintable()


def test_a_file_that_is_not_utf8_is_told_with_the_line(folder: Path) -> None:
    Path("policy.toml").write_bytes(b"version = 1\nflag_file = '\xe9'\n")
    assert refused() == ("policy.toml:2: it is not UTF-8: save it as UTF-8",)


def test_a_huge_file_is_not_read(folder: Path) -> None:
    Path("policy.toml").write_bytes(b"#" * MOST_BYTES)
    assert read_policy("policy.toml").policy == Policy()
    Path("policy.toml").write_bytes(b"#" * (MOST_BYTES + 1))
    assert refused() == ("policy.toml:1: the file is larger than 1_000_000 bytes: name a smaller policy file",)


@pytest.mark.skipif(not hasattr(sys, "get_int_max_str_digits"), reason="this Python reads numbers of any length")
def test_a_number_without_end_is_told(folder: Path) -> None:
    Path("policy.toml").write_text(f"[windows]\nrounds = {'9' * 5000}\n")
    assert refused() == ("policy.toml:1: it holds a number with too many digits",)


def test_a_home_folder_that_nobody_typed_is_not_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    Path("policy.toml").write_text(
        'flag_file = "."\n[baseline]\nsource = "file"\nfile = "b"\n[audit]\nfolder = "policy.toml"'
    )
    lines = refused()
    assert len(lines) == 3
    assert not [line for line in lines if str(folder) in line]


LINES = default_policy_text().splitlines()
FRAGMENTS = [
    "[",
    "]",
    "{",
    '"',
    "'",
    '"""',
    "=",
    ".",
    "\n",
    "#",
    "nan",
    "-1",
    "1e400",
    "true",
    "[triggers]",
    "\0",
    "é",
    "below",
]


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """The default policy with lines lost, doubled, moved and spoilt."""
    lines = draw(st.permutations(LINES)) if draw(st.booleans()) else list(LINES)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(lines) - 1))
        column = draw(st.integers(0, len(lines[at])))
        fragment = draw(st.sampled_from([*FRAGMENTS, *LINES]) | st.text(max_size=5))
        spoilt = lines[at][:column] + fragment + lines[at][column + draw(st.integers(0, 3)) :]
        lines[at : at + draw(st.integers(0, 2))] = [spoilt]
    return "\n".join(lines)


def assert_policy_or_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    found, lines = None, ()
    try:
        found = read_policy(path).policy
    except PolicyError as error:
        lines = error.lines
    if found is not None:
        assert found == msgspec.convert(tomllib.loads(content.decode()), Policy)
        assert found.digest.startswith("sha256:")
    assert (found is None) == bool(lines)
    for line in lines:
        match = re.fullmatch(rf"{re.escape(str(path))}:(\d+): .+", line)
        assert match, line
        assert 1 <= int(match[1]) <= content.count(b"\n") + 1


@given(text=mangled())
def test_a_spoilt_policy_is_a_policy_or_an_error_with_lines(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "spoilt.toml"
    assert_policy_or_error(path, text.encode("utf-8", "replace"))


@given(content=st.binary(max_size=200) | st.text("[]{}=.\"'#\\ \n01ex-_:T", max_size=60).map(str.encode))
def test_anything_is_a_policy_or_an_error_with_lines(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    assert_policy_or_error(tmp_path_factory.getbasetemp() / "anything.toml", content)


def test_a_key_that_is_there_twice_is_told_as_such_at_the_end_of_a_file_too(folder: Path) -> None:
    """No reader is sent to look for what is missing."""
    (folder / "guard.toml").write_text('version = 1\nmode = "enforce"\nmode = "enforce"')
    with pytest.raises(PolicyError, match=r":3: this is not TOML: Can ?not overwrite a value$"):
        read_policy(folder / "guard.toml")


def test_a_policy_that_was_made_in_code_is_held_against_the_same_rules(folder: Path) -> None:
    """Nothing else would: msgspec holds nothing against its types there."""
    made: Any = {"mode": "Observe_only", "triggers": {"queue": Trigger(below=2)}, "flag_file": Path("flag")}
    with pytest.raises(PolicyError) as caught:
        policy_in_code(Policy(**made), folder)
    mode, flag, queue = sorted(caught.value.lines, key=lambda line: "fmt".index(line[0]) if line[0] != "m" else -1)
    assert mode == 'mode must be one of "enforce", "observe_only", not "Observe_only"; did you mean observe_only?'
    assert flag.startswith("flag_file must be a text in quotes, not a ")
    assert queue.startswith("triggers.queue must say above")
    assert policy_in_code(Policy(mode="enforce"), folder).policy == Policy(mode="enforce")
    assert policy_in_code(Policy(triggers={"queue": Trigger(above=2)}), folder).policy.digest == (
        read("triggers.queue.above = 2").policy.digest
    )
