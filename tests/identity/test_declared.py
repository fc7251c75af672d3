"""What whoever runs the program says about it."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.identity import declared as module
from otel_specdecode.identity.declared import DECLARATION, RUN_ID, Declared, declare, declared

LOG = "otel_specdecode"


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (RUN_ID, DECLARATION):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_current", None)


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


# By the program


def test_nothing_is_declared_at_first() -> None:
    assert declared() == Declared()


def test_what_is_declared_stands_in_place_of_all_before(tmp_path: Path) -> None:
    """Of policies only the digest is kept: of a file's content, or of a mapping's canonical JSON."""
    gates = tmp_path / "gates.toml"
    gates.write_bytes(b"accept_rate = 0.5\n")
    made = declare(
        run_id="canary-7",
        draft_length=4,
        stop_sequences=["\n\n", "</s>", "\n\n"],
        sampling={"top_p": 0.9, "temperature": 0, "seed": None, "greedy": True, "kind": "nucleus"},
        gate_policy=gates,
        guard_policy={"k": [4, 2], "floor": 0.5},
        side_load_note="tokenizer patched by hand",
    )
    assert declared() is made
    assert made == Declared(
        run_id="canary-7",
        draft_length=4,
        stop_sequences=("\n\n", "</s>"),
        sampling=(("greedy", True), ("kind", "nucleus"), ("temperature", 0), ("top_p", 0.9)),
        gate_policy=sha256(b"accept_rate = 0.5\n"),
        guard_policy=sha256(b'{"floor":0.5,"k":[4,2]}'),
        side_load_note="tokenizer patched by hand",
    )
    declare(draft_length=2)
    assert declared() == Declared(draft_length=2)


def test_a_policys_digest_may_be_handed_over_itself() -> None:
    assert declare(gate_policy=sha256(b"")).gate_policy == sha256(b"")


def test_order_has_no_meaning() -> None:
    one = declare(stop_sequences=["a", "b"], sampling={"x": 1, "y": 2}, gate_policy={"x": 1, "y": 2})
    assert declare(stop_sequences=["b", "a"], sampling={"y": 2, "x": 1}, gate_policy={"y": 2, "x": 1}) == one


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"run_id": ""}, r"run_id must be a printable text of 1 to 128 characters"),
        ({"run_id": "a\nb"}, r"run_id must be a printable text"),
        ({"run_id": "x" * 129}, r"run_id must be a printable text"),
        ({"run_id": 7}, r"run_id must be a printable text"),
        ({"side_load_note": "\udcff"}, r"side_load_note must be a printable text"),
        ({"draft_length": -1}, r"draft_length must be a whole number from 0 to 1024"),
        ({"draft_length": True}, r"draft_length must be a whole number"),
        ({"draft_length": 2.0}, r"draft_length must be a whole number"),
        ({"draft_length": 1_025}, r"draft_length must be a whole number"),
        ({"stop_sequences": "</s>"}, r"stop_sequences must be a list of texts, not one text"),
        ({"stop_sequences": 1}, r"stop_sequences must be a list of texts"),
        ({"stop_sequences": [""]}, r"each of stop_sequences must be a text of 1 to 128"),
        ({"stop_sequences": ["x" * 129]}, r"each of stop_sequences must be"),
        ({"stop_sequences": ["\ud800"]}, r"each of stop_sequences must be"),
        ({"stop_sequences": [1]}, r"each of stop_sequences must be"),
        ({"stop_sequences": [str(n) for n in range(65)]}, r"stop_sequences must be at most 64"),
        ({"sampling": [1]}, r"sampling must be a mapping of at most 64"),
        ({"sampling": {1: 2}}, r"each name in sampling must be a printable text"),
        ({"sampling": {"a": "b\n"}}, r"sampling's a must be a printable text"),
        ({"sampling": {"a": float("nan")}}, r"sampling's a holds the number nan"),
        ({"sampling": {"a": [1]}}, r"sampling's a must be a text, a number, true or false"),
        ({"sampling": {"a": object()}}, r"sampling's a holds a object"),
        ({"gate_policy": 7}, r"gate_policy must be a file's path or a mapping"),
        ({"gate_policy": {1: 2}}, r"gate_policy has a key that is not a text"),
        ({"guard_policy": "no-such-folder/policy.toml"}, r"guard_policy: policy\.toml cannot be read \(No such file"),
    ],
)
def test_what_is_not_as_it_should_be_changes_nothing(said: dict[str, Any], reason: str) -> None:
    before = declare(draft_length=4)
    with pytest.raises(ValueError, match=f"^{reason}"):
        declare(**said)
    assert declared() is before


def test_a_policys_file_is_named_without_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILE_BYTES", 4)
    (tmp_path / "large.toml").write_bytes(bytes(5))
    for name in ("missing.toml", "large.toml"):
        with pytest.raises(ValueError, match=f"^guard_policy: {name}") as caught:
            declare(guard_policy=tmp_path / name)
        assert str(tmp_path) not in str(caught.value)


def test_a_reader_never_sees_half_a_declaration() -> None:
    """While another thread declares one thing and another in turns."""
    seen: set[Declared] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(declared())

    reader = threading.Thread(target=read)
    declare(run_id="1", draft_length=1)
    reader.start()
    for number in (2, 1) * 200:
        declare(run_id=str(number), draft_length=number)
    done.set()
    reader.join()
    assert seen
    assert {(each.run_id, each.draft_length) for each in seen} <= {("1", 1), ("2", 2)}


# By the environment


def test_the_run_comes_from_the_environment_where_none_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, "nightly")
    assert declared() == Declared(run_id="nightly")
    assert declare(draft_length=4).run_id == "nightly"
    assert declare(run_id="mine").run_id == "mine"


def test_a_run_that_cannot_be_printed_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(RUN_ID, "two\nlines")
    assert declared() == declared() == Declared()
    assert [record.getMessage() for record in caplog.records if record.name == LOG] == [
        "OTEL_SPECDECODE_RUN_ID must be a printable text of 1 to 128 characters on one line; there is no run id"
    ]


DECLARATION_TEXT = """
run_id = "from-file"
draft_length = 4
stop_sequences = ["</s>"]
gate_policy = "gates.toml"
side_load_note = "none"

[sampling]
temperature = 0.7

[guard_policy]
floor = 0.5
"""


def test_a_program_that_declares_nothing_may_have_a_file_do_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy's path begins at that file's folder. What the program declares stands above it."""
    (tmp_path / "run.toml").write_text(DECLARATION_TEXT)
    (tmp_path / "gates.toml").write_bytes(b"gates")
    monkeypatch.setenv(DECLARATION, str(tmp_path / "run.toml"))
    assert declared() == Declared(
        run_id="from-file",
        draft_length=4,
        stop_sequences=("</s>",),
        sampling=(("temperature", 0.7),),
        gate_policy=sha256(b"gates"),
        guard_policy=sha256(b'{"floor":0.5}'),
        side_load_note="none",
    )
    (tmp_path / "run.toml").unlink()
    assert declared().draft_length == 4
    declare()
    assert declared() == Declared()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"draft_length = ", "run.toml is not a TOML file in UTF-8"),
        (b"\xff", "run.toml is not a TOML file in UTF-8"),
        (b"draft_lenght = 4", "run.toml has 1 unknown keys; known are run_id, draft_length"),
        (b"draft_length = '4'", "draft_length must be a whole number"),
        (b"gate_policy = 'no.toml'", "gate_policy: no.toml cannot be read"),
        (b"[sampling]\nat = 2026-11-30", "sampling's at holds a date"),
        (None, "run.toml cannot be read (No such file or directory)"),
    ],
)
def test_a_bad_file_is_warned_of_once_without_its_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    content: bytes | None,
    reason: str,
) -> None:
    """Nothing is raised, and the run of the environment is there all the same."""
    if content is not None:
        (tmp_path / "run.toml").write_bytes(content)
    monkeypatch.setenv(DECLARATION, str(tmp_path / "run.toml"))
    monkeypatch.setenv(RUN_ID, "nightly")
    with caplog.at_level(logging.DEBUG, LOG):
        assert [declared() for _ in range(3)] == [Declared(run_id="nightly")] * 3
    (message,) = [record.getMessage() for record in caplog.records if record.name == LOG]
    assert message.startswith(f"the declaration that OTEL_SPECDECODE_DECLARATION names is not used: {reason}")
    assert str(tmp_path) not in message
    assert tmp_path.name not in message


def test_many_threads_that_ask_first_read_the_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(DECLARATION, str(tmp_path / "missing.toml"))
    threads = [threading.Thread(target=declared) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([record for record in caplog.records if record.name == LOG]) == 1


def test_while_the_file_is_read_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may declare meanwhile, and that stands; a child that is forked meanwhile is not held up either."""
    (tmp_path / "run.toml").write_text("draft_length = 4")
    monkeypatch.setenv(DECLARATION, str(tmp_path / "run.toml"))
    content = module._content

    def read_while_another_thread_declares(path: Path) -> bytes:
        other = threading.Thread(target=declare, kwargs={"draft_length": 2}, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()
        return content(path)

    monkeypatch.setattr(module, "_content", read_while_another_thread_declares)
    assert declared().draft_length == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_can_declare_whatever_its_parent_was_at() -> None:
    with module._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            other = threading.Thread(target=declare, daemon=True)
            other.start()
            other.join(10)
            os._exit(1 if other.is_alive() else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
