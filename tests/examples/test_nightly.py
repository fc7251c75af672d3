"""The nightly run, on the tiny models, with nights of some seconds."""

from __future__ import annotations

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path

import pytest

from otel_specdecode.acceptance.records import Run
from tests.examples.running import EXAMPLES

pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.storage import read_run

pytestmark = [pytest.mark.slow, pytest.mark.source]

PROMPT = {"id": "fox", "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 32}


@pytest.mark.llama_cpp
def test_a_night_sweeps_soaks_judges_and_reports(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    prompts, policy = tmp_path / "prompts.jsonl", tmp_path / "gates.toml"
    prompts.write_text(json.dumps(PROMPT) + "\n")
    policy.write_text('preset = "balanced"\n')
    variables = {
        "TARGET": "tiny",
        "DRAFT": "tiny:draft-kd",
        "VENV": sys.prefix,
        "POLICY": str(policy),
        "RUNS": str(tmp_path / "runs"),
        "PROFILE": "lab",
        "MINUTES": "0.05",
        "WARM_UP": "0",
        "REPEATS": "2",
        "DRAFT_TOKENS": "2",
        "EXTRA": f"--engine llama_cpp --prompts {prompts}",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}

    done = subprocess.run(
        [EXAMPLES / "nightly.sh"],
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    assert done.returncode == 3, done.stderr  # a night of some seconds is invalid, and says so
    (night,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in night.iterdir()} == {
        *("sweep", "soak", "report.html", "report.json", "report.md", "verdict.json")
    }
    verdict = json.loads((night / "verdict.json").read_text())
    assert (verdict["status"], verdict["arm"]) == ("invalid", "k=2")
    runs: list[Run] = [read_run(night / name) for name in ("sweep", "soak")]
    assert [run.head.conditions["notes"] for run in runs] == [{"placement": "lab"}] * 2
    assert runs[1].head.run_id == f"{runs[0].head.run_id}-soak"
    assert [arm.name for arm in runs[1].head.arms] == ["ar", "k=2"]


def test_what_it_needs_is_told_where_it_is_missing() -> None:
    done = subprocess.run(
        [EXAMPLES / "nightly.sh"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "name the target" in done.stderr


def test_the_recipe_for_launchd_runs_the_script_with_all_it_needs() -> None:
    recipe = plistlib.loads((EXAMPLES / "nightly.plist").read_bytes())

    assert recipe["ProgramArguments"] == ["/opt/otel-specdecode/examples/nightly.sh"]
    assert {"TARGET", "DRAFT", "VENV", "POLICY"} <= recipe["EnvironmentVariables"].keys()
    assert recipe["ProcessType"] == "Interactive"
    assert recipe["Label"] in (EXAMPLES / "nightly.plist").read_text()
