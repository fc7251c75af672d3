"""Engines: installed, supported, startable, hooked. The real ones in a process of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.children import Answer, ask_child
from otel_specdecode.doctor.engines import engine_checks, probe_child

FITS = Answer({"facts": {}, "unhooked": [], "warnings": []})


def checked(versions: Mapping[str, str], probe: Callable[[str], Answer] = lambda _: FITS) -> dict[str, Check]:
    return {check.id: check for check in engine_checks(versions.get, probe)}


def test_an_engine_in_a_supported_version_whose_hooks_fit_is_fine() -> None:
    checks = checked({"mlx-lm": "0.30.0", "mlx": "0.30.1"})
    assert checks["engine.mlx_lm"].detail == "mlx-lm 0.30.0, mlx 0.30.1; supported (>=0.28.4)"
    assert checks["engine.mlx_lm.hooks"].detail == "they fit this version"
    assert {check.status for check in checks.values()} == {"ok"}


def test_one_engine_is_enough_and_the_other_is_told_how_to_get() -> None:
    checks = checked({"mlx-lm": "0.30.0", "mlx": "0.30.1"})
    assert checks["engine.llama_cpp"].status == "ok"
    assert 'pip install "otel-specdecode[llama-cpp]"' in checks["engine.llama_cpp"].detail


def test_no_engine_at_all_is_broken_and_the_fix_names_the_extras() -> None:
    checks = checked({})
    assert checks["engine.any"].status == "error"
    assert "[mlx]" in checks["engine.any"].fix
    assert "[llama-cpp]" in checks["engine.any"].fix


def test_an_unsupported_version_is_broken_and_the_fix_is_a_command() -> None:
    check = checked({"llama-cpp-python": "0.2.90"})["engine.llama_cpp"]
    assert check.status == "error"
    assert check.fix == "pip install --upgrade 'llama-cpp-python>=0.3.2'"


@pytest.mark.parametrize("version", ["0.29.0rc1", "0.28.4+local.1"])
def test_releases_to_come_and_local_builds_count_by_their_number(version: str) -> None:
    assert checked({"mlx-lm": version})["engine.mlx_lm"].status == "ok"


def test_a_version_that_is_none_is_told_and_not_judged() -> None:
    assert checked({"mlx-lm": "mine"})["engine.mlx_lm"].status == "warn"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer({}, "ended the process (SIGSEGV)"), "importing it ended the process (SIGSEGV)"),
        (Answer({}, "took longer than 120 s"), "importing it took longer than 120 s"),
        (
            Answer({"import_error": "ImportError", "import_text": "no libmlx.so"}),
            "it cannot be imported (ImportError: no libmlx.so)",
        ),
    ],
)
def test_an_engine_that_does_not_start_is_broken(answer: Answer, told: str) -> None:
    checks = checked({"mlx-lm": "0.30.0"}, lambda _: answer)
    check = checks["engine.mlx_lm.starts"]
    assert (check.status, check.detail) == ("error", told)
    assert "reinstall" in check.fix
    assert "engine.mlx_lm.hooks" not in checks


def test_hooks_that_do_not_fit_are_broken_and_the_reason_is_the_librarys_own() -> None:
    found = {"facts": {}, "unhooked": ["mlx_lm.generate:stream_generate"], "warnings": ["this version is not watched"]}
    check = checked({"mlx-lm": "0.30.0"}, lambda _: Answer(found))["engine.mlx_lm.hooks"]
    assert check.status == "error"
    assert "mlx_lm.generate:stream_generate (this version is not watched)" in check.detail


def test_hooks_that_fit_with_a_warning_work() -> None:
    found = {"facts": {}, "unhooked": [], "warnings": ["streams end late"]}
    check = checked({"mlx-lm": "0.30.0"}, lambda _: Answer(found))["engine.mlx_lm.hooks"]
    assert (check.status, check.detail) == ("warn", "they fit, with a warning: streams end late")


@pytest.mark.mlx
def test_the_hooks_fit_the_mlx_lm_that_is_installed() -> None:
    found = probe_child("mlx_lm").found
    assert (found["unhooked"], found["warnings"]) == ([], [])
    assert found["facts"]["metal"] is (sys.platform == "darwin")


@pytest.mark.llama_cpp
def test_the_hooks_fit_the_llama_cpp_python_that_is_installed() -> None:
    found = probe_child("llama_cpp").found
    assert (found["unhooked"], found["warnings"]) == ([], [])
    assert "system_info" in found["facts"]


@pytest.mark.llama_cpp
def test_an_engine_of_another_shape_is_found_not_to_fit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose `Llama` lacks what is hooked, imported in a real child process."""
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text("from llama_cpp.llama import Llama\n")
    (package / "llama.py").write_text("class Llama:\n    def generate(self): ...\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    found = probe_child("llama_cpp").found
    assert "llama_cpp.llama:Llama.generate" in found["unhooked"]
    assert any("llama-cpp-python is not watched" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", "ended the process (SIGABRT)"),
        ("raise SystemExit(3)", "ended the process with status 3"),
        ("print('loading')", "gave no answer"),
        ("import threading; threading.Event().wait()", "took longer than 1 s"),
    ],
)
def test_a_child_that_gives_no_answer_says_why(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    (tmp_path / "crashing.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    timeout = 1 if "threading" in source else 60
    assert ask_child("crashing", timeout=timeout) == Answer({}, told)


def test_what_a_child_prints_itself_does_not_spoil_its_answer(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chatty.py").write_text(
        "import os\nfrom otel_specdecode.doctor.children import answer\n"
        "def find():\n    print('hello')\n    os.write(1, b'from native code')\n    return {'found': 1}\n"
        "answer(find)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    assert ask_child("chatty", timeout=60) == Answer({"found": 1})
