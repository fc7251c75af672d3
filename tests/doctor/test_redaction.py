"""What tells who and which machine it was goes; what a parser reads stays."""

from __future__ import annotations

import pytest

from otel_specdecode.doctor.bundle import FORMAT
from otel_specdecode.doctor.redaction import Identity, Redaction, this_identity
from otel_specdecode.host import macos
from otel_specdecode.host.macos import MacReader
from tests.host.captures import FOLDERS, FakeMac, all_captured, captured

MARIA = Identity(
    homes=("/Volumes/Work/maria",),
    users=("Maria Sklodowska", "maria"),
    hosts=("Marias-MacBook-Pro.local", "Marias-MacBook-Pro"),
)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("/Users/maria/models/x.gguf", "/Users/user/models/x.gguf"),
        ("/home/someone-else/x", "/home/user/x"),
        ("/Users/Alice Smith/models", "/Users/user/models"),
        ("/Users/Alice B. O'Neil/models", "/Users/user/models"),
        ("in /home/bob or /etc/x", "in /home/user or /etc/x"),
        (r"C:\Users\Alice Smith\x", r"C:\Users\user\x"),
        ("cannot open /srv/envs/zoe/lib/python3.12/site-packages/mlx/a.so:", "cannot open site-packages/mlx/a.so:"),
        ("/Volumes/Work/maria/x", "/home/user/x"),
        (r"C:\\Users\\maria\\x".replace("\\\\", "\\"), r"C:\\Users\\user\\x".replace("\\\\", "\\")),
        ("by MARIA at marias-macbook-pro.local", "by user at host"),
        ("Maria Sklodowska's Mac", "user's Mac"),
        ("submariner", "submariner"),
        ("maria@corp.example", "user@host"),
        (
            " -InternalBattery-0 (id=23265379)\t80%; AC attached; not charging present: true",
            " -InternalBattery-0 (id=1234567)\t80%; AC attached; not charging present: true",
        ),
        (" -Jo's UPS (id=42)\t87%; discharging", " -External-0 (id=1234567)\t87%; discharging"),
        (
            " sleep                0 (sleep prevented by sharingd, Claude, caffeinate)",
            " sleep                0 (sleep prevented by process, process, process)",
        ),
        ('"IOPlatformSerialNumber" = "C02XL0AAJGH5"', '"IOPlatformSerialNumber" = "removed"'),
        ("Serial Number: C02XL0AAJGH5", "Serial Number: removed"),
        ("0C1D2E3F-1234-5678-9ABC-DEF012345678", "00000000-0000-0000-0000-000000000000"),
        ("hid-a4:83:e7:01:02:03-battery", "hid-00:00:00:00:00:00-battery"),
        ("docker-" + "ab" * 32, "docker-" + "0" * 32),
    ],
)
def test_what_tells_who_it_was_is_replaced(text: str, redacted: str) -> None:
    assert Redaction(MARIA).text(text) == redacted


@pytest.mark.parametrize("name", ["ab", "root", "user", ""])
def test_names_that_tell_nothing_or_are_too_short_to_be_told_from_words_stay(name: str) -> None:
    text = f"a {name} is there"
    assert Redaction(Identity((), (name,), (name,))).text(text) == text


def test_lists_nested_texts_and_paths_of_files_are_redacted_and_other_keys_and_numbers_stay() -> None:
    value = {"maria": ["maria", 7, None, True, {"x": ("maria",)}], "files": {"/Users/maria/a": ["maria"]}}
    redacted = {"maria": ["user", 7, None, True, {"x": ["user"]}], "files": {"/Users/user/a": ["user"]}}
    assert Redaction(MARIA).value(value) == redacted


def test_redacting_twice_changes_nothing_more() -> None:
    redaction = Redaction(MARIA)
    for folder in FOLDERS:
        for name in all_captured(folder):
            once = redaction.text(captured(name))
            assert redaction.text(once) == once


@pytest.mark.parametrize("name", [name for folder in FOLDERS for name in all_captured(folder)])
def test_a_redacted_output_reads_as_the_output_itself(name: str) -> None:
    text = captured(name)
    folder = name.partition("/")[0]
    kept = Redaction(MARIA).text(text)
    assert (
        MacReader(FakeMac(texts={folder: kept}), None).read() == MacReader(FakeMac(texts={folder: text}), None).read()
    )


@pytest.mark.parametrize(
    ("user", "host"), [("system", "x1"), ("alice", "files"), ("proc", "memory"), ("ubuntu", "x1"), ("linux", "bundle")]
)
def test_a_name_that_is_a_word_of_the_bundle_changes_nothing_that_is_read(user: str, host: str) -> None:
    content = {
        "bundle": FORMAT,
        "system": "linux",
        "machine": {"os_name": "Ubuntu"},
        "commands": [{"command": ["/usr/bin/pmset", "-g"], "lines": [f"of {user}x"], "failure": ""}],
        "files": {"/etc/os-release": ['NAME="Ubuntu"'], "/proc/meminfo": ["MemTotal: 1 kB"]},
        "folders": {"/sys/class": ["system", "proc"]},
    }
    assert Redaction(Identity((f"/home/{user}",), (user,), (host,))).value(content) == content


def test_places_alone_leave_names_as_they_are() -> None:
    assert Redaction(MARIA).places("maria: /Users/maria/x") == "maria: /Users/user/x"


def test_who_it_is_here_is_found_and_its_home_folder_replaced() -> None:
    found = this_identity({"HOME": "/data/people/zoe", "USER": "zoe-b"})
    assert "/data/people/zoe" in found.homes
    assert "zoe-b" in found.users
    assert Redaction(found).text("zoe-b: /data/people/zoe/x") == "user: /home/user/x"


def test_every_command_that_is_captured_has_outputs_to_test_with() -> None:
    assert set(FOLDERS.values()) == set(macos.COMMANDS)


def test_a_home_folder_that_nobody_knows_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert [home for home in this_identity({}).homes if "~" in home] == []
