"""The schema of the guard's policy file: that the shipped one is up to date, and that a stale one is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")

from otel_specdecode.guard.policy_text import SCHEMA_FILE, policy_schema
from scripts import guard_schema


@pytest.mark.source
def test_the_shipped_schema_is_up_to_date() -> None:
    assert guard_schema.main(["--check"]) == 0


def test_what_is_missing_or_stale_is_named_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / SCHEMA_FILE
    assert guard_schema.main(["--check"], tmp_path) == 1
    assert SCHEMA_FILE in capsys.readouterr().err
    assert not path.exists()
    assert guard_schema.main([], tmp_path) == 0
    assert json.loads(path.read_text()) == json.loads(json.dumps(policy_schema()))
    assert guard_schema.main(["--check"], tmp_path) == 0
    path.write_text(path.read_text().replace("Policy", "Pollicy"))
    assert guard_schema.main(["--check"], tmp_path) == 1
