"""Commands whose code runs as `__main__`, where the hooks do not reach it."""

from __future__ import annotations

import sys

import pytest

from otel_specdecode.engines.mlx_lm.commands import WHAT_IS_MISSING, main_module, warn_of_main_module


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("python -m mlx_lm.server --model m", "mlx_lm.server"),
        ("python -mmlx_lm.server", "mlx_lm.server"),
        ("python -u -Im mlx_lm.generate -m other", "mlx_lm.generate"),
        ("python -W error -X dev -Wignore::m -m mlx_lm.chat", "mlx_lm.chat"),
        ("python --check-hash-based-pycs=default -m mlx_lm.server", "mlx_lm.server"),
        ("python app.py -m mlx_lm.server", None),
        ("python - -m mlx_lm.server", None),
        ("python -c pass -m mlx_lm.server", None),
        ("python -Ic pass -m mlx_lm.server", None),
        ("python -W error", None),
        ("python -m", None),
        ("python", None),
    ],
)
def test_the_module_that_a_command_line_runs(command: str, module: str | None) -> None:
    assert main_module(command.split()) == module


@pytest.mark.parametrize("module", WHAT_IS_MISSING)
def test_it_is_said_once_what_is_missing_and_what_to_start_instead(
    module: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", module])
    warn_of_main_module()
    warn_of_main_module()
    (record,) = caplog.records
    assert f"`python -m {module.replace('.', ' ')}`" in record.message


@pytest.mark.parametrize("command", ["python -m mlx_lm server", "mlx_lm.server", "python -m mlx_lm.chat"])
def test_other_commands_are_not_warned_of(
    command: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "orig_argv", command.split())
    warn_of_main_module()
    assert caplog.records == []
