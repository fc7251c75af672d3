"""The audit trail where processes fork, end and are killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from otel_specdecode.guard.trail import read_trail
from tests.guard.trails import (
    PROGRAM,
    environment,
    samples_in,
)
from tests.programs import ROOT, run_program


def test_the_child_of_a_fork_has_files_of_its_own(tmp_path: Path) -> None:
    told = run_program(
        PROGRAM
        + """
    trail = a_trail(folder, most_bytes=4096, files=1)
    for number in range(10):
        trail.write(transition(number, samples=number))
    assert trail.flush(10)
    of_parent = {path: path.read_bytes() for path in folder.iterdir()}
    child = os.fork()
    if not child:
        for number in range(100, 150):
            trail.write(transition(number, samples=number))
            assert trail.flush(10)
        assert trail.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert {path: path.read_bytes() for path in of_parent} == of_parent
    trail.write(transition(10, samples=10))
    assert trail.close()
    read = read_trail(folder)
    assert read.is_whole
    by_process = {}
    for entry in read.entries:
        by_process.setdefault(int(entry.process.partition("-")[0]), []).append(entry.transition.samples)
    assert by_process[os.getpid()][-1] == 10
    assert by_process[child][-1] == 149 and min(by_process[child]) >= 100
    print("done")
    """,
        str(tmp_path),
    )
    assert told == "done\n"


def test_a_fork_leaves_to_the_parent_what_the_parent_has_not_written_yet(tmp_path: Path) -> None:
    run_program(
        PROGRAM
        + """
    (folder / "trail").write_text("in the way")
    trail = a_trail(folder / "trail" / "of both")
    trail.write(transition(samples=1))
    assert not trail.flush(10)
    (folder / "trail").unlink()
    child = os.fork()
    if not child:
        trail.write(transition(samples=2))
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """,
        str(tmp_path),
    )
    trail = read_trail(tmp_path / "trail" / "of both")
    assert sorted(entry.transition.samples for entry in trail.entries) == [1, 2]


def test_a_program_that_ends_leaves_nothing_unwritten(tmp_path: Path) -> None:
    run_program(
        PROGRAM
        + """
    trail = a_trail(folder)
    for number in range(1000):
        trail.write(transition(number, samples=number))
    """,
        str(tmp_path),
    )
    assert samples_in(tmp_path) == list(range(1000))


WORKER = """
import sys
from pathlib import Path
from tests.guard.trails import a_trail, transition
from otel_specdecode.generation.transition import Lane
trail = a_trail(Path(sys.argv[1]), most_bytes=20_000, files=10_000)
number = 0
while True:
    for _ in range(7):
        number += 1
        trail.write(transition(number, samples=number, lane=Lane("tenant", sys.argv[2])))
    if trail.flush(60):
        print(number, flush=True)
"""


def test_four_workers_that_are_killed_lose_at_most_what_they_were_writing(tmp_path: Path) -> None:
    dice = random.Random()  # other moments each time
    acknowledged: dict[str, int] = {}
    with ExitStack() as running:
        workers = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WORKER, str(tmp_path), str(number)],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                    env=environment(),
                )
            )
            for number in range(4)
        ]
        for name, worker in enumerate(workers):
            running.callback(worker.kill)
            assert worker.stdout is not None
            for _ in range(dice.randint(1, 60)):
                acknowledged[str(name)] = int(worker.stdout.readline())
            worker.send_signal(signal.SIGKILL)
            rest = worker.stdout.read().split("\n")[:-1]
            acknowledged[str(name)] = int(rest[-1]) if rest else acknowledged[str(name)]
    trail = read_trail(tmp_path)
    assert (trail.unreadable, trail.missing, trail.lost) == (0, 0, 0)
    assert trail.unfinished <= 4
    times = [entry.transition.at for entry in trail.entries]
    assert times == sorted(times)
    for name, last in acknowledged.items():
        numbers = [entry.transition.samples for entry in trail.entries if entry.transition.lane.key == name]
        assert numbers == list(range(1, len(numbers) + 1))
        assert last <= len(numbers) <= last + 14
