from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance import running
from otel_specdecode.acceptance.records import RunHead
from otel_specdecode.acceptance.running import Setting, check_run_id, new_run_id
from otel_specdecode.acceptance.storage import RunWriter, begin
from otel_specdecode.acceptance.sweep import Levers
from otel_specdecode.cli import main
from tests.acceptance.fakes import MANIFEST, arms, fake_run, prompts

PAIR = ("--engine", "mlx", "--model", "tiny", "--draft", "tiny:draft")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def keep(folder: Path) -> Path:
    """Write a run of a sweep that went well."""
    run = fake_run(arms([2, 4]), prompts(12), repeats=2, manifest={**MANIFEST, "target": {"name": "t"}})
    begin(folder, run.head)
    writer = RunWriter(folder)
    for line in (*run.results, *run.host, *run.notes):
        writer.add(line)
    writer.close()
    return folder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("sweep", "--model", "tiny"), "a sweep needs a --draft to compare with the target alone"),
        (("sweep", *PAIR, "--draft-tokens", "2,x"), "'x' is no whole number"),
        (("sweep", *PAIR, "--draft-tokens", "0"), "0 is not between 1 and 64"),
        (("sweep", *PAIR, "--draft-tokens", ""), "'' is no whole number"),
        (("sweep", *PAIR, "--temperature", "nan"), "nan is not between"),
        (("sweep", *PAIR, "--repeats", "0"), "0 is not in the range"),
        (("sweep", *PAIR, "--resume"), "--resume needs --out"),
        (("sweep", *PAIR, "--note", "weather=fine"), "--note weather: it is one of ambient, placement"),
        (("sweep", *PAIR, "--note", "ambient"), "'ambient' has to be NAME=VALUE"),
        (("sweep", *PAIR, "--run-id", "../up"), "'../up' cannot be a run id: letters, digits"),
        (("sweep", *PAIR, "--stop-below", "1.1"), "1.1 is not in the range"),
        (("sweep", *PAIR, "--tune-above", "-0.1"), "-0.1 is not in the range"),
        (("manifest", *PAIR, "--note", "weather=fine"), "--note weather: it is one of ambient, placement"),
        (("sweep", "--engine", "vllm", "--model", "m", "--draft", "d"), "--engine vllm: it is one of mlx, llama_cpp"),
        (("sweep", "--model", "m", "--draft", "a", "--draft", "b"), "each is --draft LABEL=MODEL"),
        (("sweep", "--model", "m", "--draft", "x=a", "--draft", "x=b"), "two drafts are called x"),
        (("sweep", *PAIR, "--prompts", "missing.jsonl"), "missing.jsonl"),
        (("sweep", *PAIR, "--mix", "chekced"), "there is no mix 'chekced'; did you mean checked?"),
        (("soak", *PAIR, "--shape", "poisson"), "--per-minute goes with --shape poisson or bursts"),
        (("soak", *PAIR, "--per-minute", "3"), "--per-minute goes with --shape poisson or bursts"),
        (("soak", "--model", "m", "--draft", "x=a", "--draft", "y=b"), "a soak takes one --draft"),
        (("guard", "baseline", "missing"), "missing holds no run: name the folder"),
    ],
)
def test_what_cannot_be_asked_for_is_told(
    arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = call(*arguments)

    assert found.exit_code in (1, 2)
    assert told in " ".join(found.output.split())
    assert isinstance(found.exception, SystemExit)
    assert not list(tmp_path.iterdir())


@pytest.mark.mlx
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("sweep", "--model", "tiny", "--draft", "tiny:drafty"), "no model 'tiny:drafty' ships with otel-specdecode"),
        (("sweep", "--model", "./nowhere", "--draft", "tiny:draft"), "nowhere"),
        (("soak", "--model", "tiny", "--draft", "./nowhere"), "nowhere"),
        (("sweep", *PAIR, "--option", "n_ctx=1"), "MLX-LM has no option n_ctx here"),
        (("manifest", "--model", "./nowhere"), "nowhere"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_told_and_leaves_no_run(
    arguments: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    out = () if arguments[0] == "manifest" else ("--out", tmp_path / "run")
    found = call(*arguments, "--engine", "mlx", *out)

    assert found.exit_code == 1, found.output
    assert told in " ".join(found.output.split())
    assert isinstance(found.exception, SystemExit)
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    begin(tmp_path / "run", RunHead("r", "sweep", 0.0, "mlx", MANIFEST, {}, (), ()))
    found = call("sweep", *PAIR, "--out", tmp_path / "run")

    assert found.exit_code == 1
    assert "holds a run already: resume it with --resume" in " ".join(found.output.split())


def test_what_is_no_run_is_not_resumed(tmp_path: Path) -> None:
    found = call("sweep", *PAIR, "--out", tmp_path / "run", "--resume")

    assert found.exit_code == 1
    assert "holds no run to resume" in " ".join(found.output.split())


def test_notes_beside_a_run_that_is_resumed_are_a_wrong_use_unless_it_has_them(tmp_path: Path) -> None:
    conditions: dict[str, object] = {"notes": {"fan": "auto"}}
    begin(tmp_path / "run", RunHead("r", "soak", 0.0, "mlx", MANIFEST, conditions, (), ()))
    found = call("sweep", *PAIR, "--out", tmp_path / "run", "--resume", "--note", "fan=off")

    assert found.exit_code == 2
    told = " ".join(found.output.split())
    assert "has fan=auto: leave such --note out, or begin another run without --resume, in another folder" in told
    same = call("sweep", *PAIR, "--out", tmp_path / "run", "--resume", "--note", "fan=auto")
    assert "leave such --note out" not in same.output


@pytest.mark.parametrize(
    ("given", "levers"),
    [((), Levers((2,))), (("--stop-below", "0.2", "--tune-above", "0"), Levers((2,), stop_below=0.2, tune_above=0.0))],
)
def test_the_bounds_at_which_a_sweep_stops_are_options(
    given: tuple[str, ...], levers: Levers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Levers] = []

    def sweep(_: Setting, levers: Levers, __: object) -> bool:
        asked.append(levers)
        return True

    monkeypatch.setattr(running, "sweep", sweep)
    call("sweep", *PAIR, "--out", tmp_path / "run", *given)

    (found,) = asked
    assert (found.stop_below, found.tune_above) == (levers.stop_below, levers.tune_above)


@pytest.mark.mlx
def test_the_manifest_is_the_one_that_a_run_has_but_for_its_prompts() -> None:
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    found = call("manifest", *PAIR)

    assert found.exit_code == 0, found.output
    document = json.loads(found.output)["manifest"]
    assert document["target"]["name"] == "target"
    assert document["drafts"]["draft"]["model"]["name"] == "draft"
    assert document["prompts"] == ""


@pytest.mark.mlx
def test_the_conditions_stand_beside_the_manifest_with_an_id_of_their_own() -> None:
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    one, other = (json.loads(call("manifest", *PAIR, "--note", f"fan={fan}").output) for fan in ("auto", "off"))

    assert one.keys() == {"manifest", "conditions"}
    assert one["conditions"].keys() >= {"power_mode", "power_source", "thermal_state", "memory_pressure"}
    assert one["conditions"]["side_load"].keys() == {"browser", "ide", "indexer", "other"}
    assert one["conditions"]["notes"] == {"fan": "auto"}
    assert one["manifest"]["id"] == other["manifest"]["id"]
    assert one["conditions"]["id"] != other["conditions"]["id"]
    assert len(one["conditions"]["id"]) == len(one["manifest"]["id"]) == 16


def test_a_run_is_the_guards_baseline(tmp_path: Path) -> None:
    found = call("guard", "baseline", keep(tmp_path / "run"), "-o", tmp_path / "baseline.json", "--operation", "chat")

    assert found.exit_code == 0, found.output
    assert "1 combination of conditions" in found.output
    assert json.loads((tmp_path / "baseline.json").read_text())["rows"][0]["operation"] == "chat"


def test_a_run_has_a_name_that_sorts_by_time_and_is_its_own() -> None:
    one, other = new_run_id(), new_run_id()
    assert check_run_id(one) == one
    assert one != other
    assert one[:8].isdigit()
