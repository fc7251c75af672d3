"""How a test tells of a program that failed: by what the program wrote, at the end of the message."""

from __future__ import annotations

import pytest

from tests.programs import run_program

SAYS = "import sys, time; print('to stdout', flush=True); print('to stderr', file=sys.stderr, flush=True);"


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("sys.exit(3)", "it ended with code 3"),
        ("time.sleep(600)", "it did not end within 3 s"),
        ("print('Traceback', file=sys.stderr)", "it told of an exception"),
    ],
)
def test_what_a_failed_program_wrote_comes_last(ending: str, why: str) -> None:
    with pytest.raises(AssertionError) as raised:
        run_program(f"{SAYS} {ending}", timeout=3)
    first, *written = str(raised.value).splitlines()
    assert first == why
    assert [line for line in written if line != "Traceback"] == ["to stdout", "", "to stderr"]


def test_the_output_of_one_that_did_not_fail_is_returned() -> None:
    assert run_program(SAYS) == "to stdout\n"
