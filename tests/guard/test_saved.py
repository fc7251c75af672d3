from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.guard.saved import Saved, StateSlot, load_state, save_state, take_slot
from otel_specdecode.guard.sealing import sealed
from tests.guard.trails import NOON, POLICY
from tests.programs import ROOT, run_program

STATE = {"breakers": {"acme": ["open", 1.5]}, "version": 1}
HOUR = 3600.0


def at(seconds: float = 0.0) -> Any:
    return lambda: NOON + int(seconds * 1e9)


def load(path: Path, policy: str = POLICY, max_age: float = HOUR, seconds: float = 0.0) -> Saved:
    return load_state(path, policy=policy, max_age=max_age, clock=at(seconds))


def take(folder: Path, seconds: float = 0.0, policy: str = POLICY) -> StateSlot:
    slot = take_slot(folder, policy=policy, max_age=HOUR, clock=at(seconds))
    assert slot is not None
    return slot


def leave(folder: Path, count: int) -> None:
    """Leave states 0 and so on, each a second newer than the one before, as processes at the same time do."""
    slots = [take(folder, seconds) for seconds in range(count)]
    for number, slot in enumerate(slots):
        assert slot.save({"of": number})
    for slot in slots:
        slot.release()


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    save_state(tmp_path / "state", STATE, policy=POLICY, clock=at())
    assert load(tmp_path / "state") == Saved(STATE, None, NOON)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"policy": "sha256:other"}, "it was saved under another policy"),
        ({"seconds": 3601.0}, "it is too old"),
        ({"seconds": -3601.0}, "it is too old"),
        ({"max_age": 1.0, "seconds": 2.0}, "it is too old"),
    ],
)
def test_a_state_of_other_circumstances_is_none_and_says_why(
    tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    save_state(tmp_path / "state", STATE, policy=POLICY, clock=at())
    assert load(tmp_path / "state", **given) == Saved(None, reason, NOON)
    assert load(tmp_path / "state", seconds=3599).state == STATE


def test_a_state_of_a_clock_a_little_ahead_is_not_refused(tmp_path: Path) -> None:
    save_state(tmp_path / "state", STATE, policy=POLICY, clock=at(5))
    assert load(tmp_path / "state").state == STATE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not as it was written"),
        (b"\xff\x00 no line", "it is not as it was written"),
        (sealed({"format": 2, "policy": POLICY, "state": {}, "saved_at_ns": NOON}), "it is of another version"),
        (sealed({"format": 1, "policy": POLICY, "state": [], "saved_at_ns": NOON}), "it is not as it was written"),
        (sealed({"format": 1, "policy": POLICY, "state": {}, "saved_at_ns": "x"}), "it is not as it was written"),
    ],
)
def test_a_file_without_a_state_is_none_and_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "state").write_bytes(content)
    assert load(tmp_path / "state") == Saved(None, reason)


def test_no_file_and_a_folder_are_none_and_say_why(tmp_path: Path) -> None:
    assert load(tmp_path / "state").reason == "there is none"
    assert load(tmp_path).reason == "it cannot be read (IsADirectoryError)"


@given(st.data())
def test_a_torn_or_altered_file_is_never_another_state(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "state of a torn file"
    save_state(path, STATE, policy=POLICY, clock=at())
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 2))
    for spoilt in (content[:place], content[:place] + b"\x00" + content[place + 1 :], content[place + 1 :]):
        path.write_bytes(spoilt)
        assert load(path).state is None
    path.unlink()


def test_a_state_that_cannot_be_saved_leaves_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slot = take(tmp_path)
    assert slot.save(STATE)
    assert not slot.save({"secret": object()})
    slot.release()
    assert load(tmp_path / "state-1.json").state == STATE
    assert "the guard's state could not be saved (TypeError)" in caplog.text
    assert "secret" not in caplog.text


def test_a_slot_in_a_folder_that_vanished_saves_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slot = take(tmp_path / "slots")
    (tmp_path / "slots" / "state-1.lock").unlink()
    (tmp_path / "slots").rmdir()
    assert not slot.save(STATE)
    slot.release()
    assert "the guard's state could not be saved (FileNotFoundError)" in caplog.text


def test_a_slot_in_a_folder_that_somebody_emptied_is_held_again(tmp_path: Path) -> None:
    slot = take(tmp_path)
    (tmp_path / "state-1.lock").unlink()
    for _ in range(2):
        assert slot.save(STATE)
        assert sorted(os.listdir(tmp_path)) == ["state-1.json", "state-1.lock"]
    other = take(tmp_path)
    assert other.found == Saved(None, "there is none")
    other.release()
    slot.release()
    again = take(tmp_path)
    assert again.found.state == STATE
    again.release()


def test_where_another_process_has_the_slot_by_now_the_state_goes_to_a_new_one(tmp_path: Path) -> None:
    slot = take(tmp_path)
    (tmp_path / "state-1.lock").unlink()
    other = take(tmp_path)
    assert other.save({"of": "other"})
    assert slot.save(STATE)
    assert [load(tmp_path / f"state-{number}.json").state for number in (1, 2)] == [{"of": "other"}, STATE]
    slot.release()
    other.release()
    assert len(list(tmp_path.glob("*.lock"))) == 2


def test_a_file_system_that_does_not_tell_files_apart_gets_no_slot_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
    slot = take(tmp_path)
    assert slot.save(STATE)
    assert slot.save(STATE)
    slot.release()
    assert sorted(os.listdir(tmp_path)) == ["state-1.json", "state-1.lock"]


def test_where_no_folder_can_be_made_there_is_no_slot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in the way").write_text("a file")
    assert take_slot(tmp_path / "in the way" / "slots", policy=POLICY, max_age=HOUR) is None
    assert "neither restored nor saved (NotADirectoryError)" in caplog.text
    assert "in the way" not in caplog.text


def test_the_first_process_finds_no_state_and_the_next_one_its(tmp_path: Path) -> None:
    first = take(tmp_path / "new")
    assert first.found == Saved(None, "there is none")
    assert first.save(STATE)
    first.release()
    assert not first.save({})
    second = take(tmp_path / "new")
    assert second.found.state == STATE
    second.release()


def test_processes_at_the_same_time_have_slots_of_their_own(tmp_path: Path) -> None:
    leave(tmp_path, 4)
    assert [load(tmp_path / f"state-{number}.json").state for number in (1, 2, 3, 4)] == [{"of": n} for n in range(4)]


def test_the_newest_state_that_nobody_has_is_taken_first(tmp_path: Path) -> None:
    leave(tmp_path, 4)
    slots = [take(tmp_path, 10) for _ in range(5)]
    assert [slot.found.state for slot in slots] == [{"of": 3}, {"of": 2}, {"of": 1}, {"of": 0}, None]
    for slot in slots:
        slot.release()
    assert len(list(tmp_path.glob("*.lock"))) == 5


def test_a_slot_whose_state_is_of_no_use_is_taken_last_but_before_a_new_one(tmp_path: Path) -> None:
    leave(tmp_path, 3)
    (tmp_path / "state-3.json").write_bytes(b"torn")
    slots = [take(tmp_path, 10) for _ in range(3)]
    assert [slot.found.state for slot in slots] == [{"of": 1}, {"of": 0}, None]
    assert slots[2].found.reason == "it is not as it was written"
    for slot in slots:
        slot.release()
    assert len(list(tmp_path.glob("*.lock"))) == 3


WORKER = """
import json, sys
from pathlib import Path
from otel_specdecode.guard.saved import take_slot
from tests.guard.trails import POLICY
print("ready", flush=True)
sys.stdin.readline()
slot = take_slot(Path(sys.argv[1]), policy=POLICY, max_age=1e9)
print(json.dumps((slot.found.state or {"of": None})["of"]), flush=True)
number = 0
while True:
    number += 1
    assert slot.save({"of": [sys.argv[2], number], "filling": "x" * 10_000})
    print(number, flush=True)
"""


def start(stack: ExitStack, folder: Path, name: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    worker = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
    )
    stack.callback(worker.kill)
    assert said(worker) == "ready"
    return worker


def said(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def let_go(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


def test_four_workers_that_are_killed_leave_whole_states_to_four_others(tmp_path: Path) -> None:
    dice = random.Random()  # other moments each time
    with ExitStack() as stack:
        workers = {name: start(stack, tmp_path, name) for name in "abcd"}
        for worker in workers.values():
            let_go(worker)
        assert [said(worker) for worker in workers.values()] == ["null"] * 4
        saved = {}
        for name, worker in workers.items():
            for _ in range(dice.randint(1, 20)):
                saved[name] = int(said(worker))
            worker.send_signal(signal.SIGKILL)
            assert worker.stdout is not None
            saved[name] = max([saved[name], *map(int, worker.stdout.read().split("\n")[:-1])])
            worker.wait()
        # The next four, all at once.
        others = [start(stack, tmp_path, name) for name in "efgh"]
        for other in others:
            let_go(other)
        for other in others:
            name, number = json.loads(said(other))
            assert saved[name] <= number <= saved.pop(name) + 1
        assert saved == {}
    assert len(list(tmp_path.glob("*.lock"))) == 4


def test_the_child_of_a_fork_neither_saves_to_nor_keeps_the_slot_of_its_parent(tmp_path: Path) -> None:
    told = run_program(
        """
    import os, sys
    from pathlib import Path
    from otel_specdecode.guard.saved import take_slot
    folder = Path(sys.argv[1])
    def take():
        return take_slot(folder, policy="", max_age=1e9)
    slot = take()
    slot.save({"of": "parent"})
    asks, answers = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        own = take()
        assert not slot.save({"of": "child"}) and own.found.state is None and own.save({"of": "child"})
        os.write(answers[1], b"x")
        os.read(asks[0], 1)
        os._exit(0)
    os.close(answers[1])
    assert os.read(answers[0], 1) == b"x", "the child failed"
    other = take()
    assert other.found.state is None, "the child's end of the lock freed the parent's"
    slot.release()
    again = take()
    print(again.found.state)
    os.write(asks[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    """,
        str(tmp_path),
    )
    assert told == "{'of': 'parent'}\n"
