"""`otel-specdecode guard init` and `guard check`."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click", reason="needs the [cli] extra")
pytest.importorskip("rich", reason="needs the [cli] extra")
pytest.importorskip("msgspec", reason="needs the [guard] extra")

from click.testing import CliRunner, Result

from otel_specdecode.cli import main
from otel_specdecode.guard.policy import Policy
from otel_specdecode.guard.policy_file import read_policy
from otel_specdecode.guard.policy_text import default_policy_text


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def invoke(*arguments: str) -> Result:
    # Before 8.2, click mixed the two outputs unless it was told not to.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart).invoke(main, ["guard", *arguments])


def program(*arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """The real program, in an environment that lacks a package."""
    script = f"import sys; sys.modules[{without!r}] = None; from otel_specdecode.cli import main; main()"
    command = [sys.executable, "-c", script, "guard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_init_prints_the_default_policy_and_nothing_else() -> None:
    result = invoke("init")
    assert (result.exit_code, result.stdout) == (0, default_policy_text())


def test_init_writes_a_file_that_check_takes() -> None:
    result = invoke("init", "--output", "policy.toml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert invoke("check", "policy.toml").exit_code == 0


def test_init_never_overwrites_a_file_unless_it_is_forced(folder: Path) -> None:
    path = folder / "policy.toml"
    path.write_text("mine")
    result = invoke("init", "--output", "policy.toml")
    assert result.exit_code == 1
    assert "policy.toml is there already: name another file, or say --force" in result.stderr
    assert path.read_text() == "mine"
    assert invoke("init", "--output", "policy.toml", "--force").exit_code == 0
    assert read_policy(path).policy == Policy()
    assert [each.name for each in folder.iterdir()] == ["policy.toml"]


def test_init_says_why_a_file_cannot_be_written() -> None:
    for force in ([], ["--force"]):
        result = invoke("init", "--output", "gone/policy.toml", *force)
        assert result.exit_code == 1
        assert "gone/policy.toml cannot be written: No such file or directory" in result.stderr


def test_check_prints_ok_with_the_digest_and_what_the_policy_does(folder: Path) -> None:
    (folder / "policy.toml").write_text(
        'mode = "enforce"\nflag_file = "[bold]flag"\n[scope]\nby = "tenant"\n[ladder]\nlengths = [3]\n[triggers.slow]\n'
        'measure = "speedup"\nbelow = 1.05\nwindows = 4\naction = "down"\n[triggers.accept_rate]\n'
        'below = { 1 = 0.5, 2 = 0.4 }\n[triggers.out_of_memory]\nabove = 3\naction = "unload"\n'
    )
    result = invoke("check", "policy.toml")
    assert (result.exit_code, result.stderr) == (0, "")
    first, *rest = result.stdout.splitlines()
    assert first == f"ok {read_policy('policy.toml').policy.digest}"
    told = "\n".join(" ".join(line.split()) for line in rest)
    for line in [
        "mode enforces",
        "decides by tenant, 1,000 at most",
        "ladder streams 1 > k=3 > autoregressive",
        "flag file [bold]flag",
        "slow speedup below 1.05, 4 windows one rung down",
        "accept_rate below 0.5 to 0.4, by k, 1 window no speculation",
        "out_of_memory from 3 in a row unload the draft",
    ]:
        assert line in told


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "baseline none: makes no control requests"),
        ('mode = "enforce"', "baseline 2.0% to 20.0% of sessions run autoregressively"),
        ('mode = "enforce"\n[baseline]\nshare = 0', "baseline none: makes no control requests"),
        ('[baseline]\nwrite = "new.json"', "baseline none: makes no control requests; writes new.json"),
        ("", "budget none"),
        ("[budget]\nshare_of_streams = 0.5", "budget each tenant 50.0% of the streams that speculate at most"),
        ("[budget]\ndraft_tokens_per_minute = 6000", "budget each tenant 6,000 proposed tokens a minute at most"),
        ("", "audit no file"),
        ('[audit]\nfolder = "trail"', "audit trail"),
        ('[audit]\nfolder = "trail"\nstate = true', "audit trail, with the state"),
    ],
)
def test_check_says_what_a_policy_takes_and_keeps(folder: Path, text: str, line: str) -> None:
    (folder / "policy.toml").write_text(text)
    result = invoke("check", "policy.toml")
    assert line in [" ".join(each.split()) for each in result.stdout.splitlines()]


@pytest.mark.parametrize("content", ["no", '{"format": 2}', '{"format": 1, "rows": []}'])
def test_check_looks_into_the_file_of_the_baseline(folder: Path, content: str) -> None:
    (folder / "policy.toml").write_text('[baseline]\nsource = "file"\nfile = "usual.json"\n')
    (folder / "usual.json").write_text(content)
    result = invoke("check", "policy.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("the baseline usual.json ")


def test_check_says_what_is_wrong_on_the_standard_error(folder: Path) -> None:
    (folder / "policy.toml").write_text("mode = 1\n[windows]\nrounds = 0\n")
    result = invoke("check", "policy.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["policy.toml:1:", "policy.toml:3:"]


def test_check_of_a_file_that_is_not_there_fails_in_the_same_form() -> None:
    result = invoke("check", "gone.toml")
    assert result.exit_code == 1
    assert result.stderr.startswith("gone.toml:1: there is no such file")


@pytest.mark.parametrize(
    "arguments", [["check"], ["check", "a", "b"], ["init", "--force"], ["start"], ["init", "--what"]]
)
def test_wrong_usage_has_its_own_status(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [["init"], ["check", "policy.toml"]])
def test_without_msgspec_the_commands_say_what_to_install(arguments: list[str]) -> None:
    done = program(*arguments, without="msgspec")
    assert done.returncode == 1
    assert done.stderr == 'Error: needs the extra [guard]: pip install "otel-specdecode[guard]"\n'


def test_help_needs_no_msgspec() -> None:
    done = program("--help", without="msgspec")
    assert (done.returncode, done.stderr) == (0, "")
