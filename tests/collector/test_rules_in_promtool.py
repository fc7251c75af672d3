"""The real promtool takes the shipped rules and finds their tests true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collector.promtool import PROMETHEUS, promtool

pytestmark = [pytest.mark.e2e, pytest.mark.source]

TESTS = sorted((PROMETHEUS / "tests").glob("*_test.yaml"))
SLOW = {"recording", "awkward", "SpecdecodeBaselineMissing"}


@pytest.mark.parametrize("path", sorted((PROMETHEUS / "rules").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_rules_are_rules(path: Path) -> None:
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for path in TESTS
        for name in [path.name.removesuffix("_test.yaml")]
    ],
)
def test_the_rules_do_what_their_tests_say(path: Path) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_expectation_is_found(tmp_path: Path) -> None:
    path = PROMETHEUS / "tests" / "SpecdecodeThrottled_test.yaml"
    text = path.read_text().replace("../rules", str(PROMETHEUS / "rules"))
    broken = tmp_path / path.name
    broken.write_text(text.replace("3m 0s", "9m 0s").replace("4m 0s", "9m 0s"))
    assert broken.read_text() != text
    assert promtool("test", "rules", broken).returncode == 1
