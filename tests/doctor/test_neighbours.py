"""Other engines on the host: who they are, without a command line, and without disturbing them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from otel_specdecode.doctor.neighbours import (
    Listening,
    Running,
    engine_of,
    engines_among,
    listening_engine,
    neighbour_checks,
    running_engines,
)
from tests.doctor.servers import free_port, http_server, raw_server

MODELS = {"object": "list", "data": [{"id": "my-secret-model", "object": "model"}]}


@pytest.mark.parametrize(
    ("name", "command", "engine"),
    [
        ("llama-server", ["llama-server", "-m", "x.gguf"], "llama-server"),
        ("ollama", ["/usr/local/bin/ollama", "serve"], "Ollama"),
        ("LM Studio", ["/Applications/LM Studio.app/Contents/MacOS/LM Studio"], "LM Studio"),
        ("Python", ["/opt/python3.12", "-m", "mlx_lm.server", "--model", "x"], "mlx_lm.server"),
        ("mlx_lm.server", ["/venv/bin/python", "/venv/bin/mlx_lm.server"], "mlx_lm.server"),
        ("python3.11", ["/venv/bin/python3.11", "/venv/bin/mlx_lm.server"], "mlx_lm.server"),
        ("python", ["python", "-u", "-m", "llama_cpp.server"], "llama_cpp.server"),
        (
            "python",
            ["python", "/venv/opentelemetry-instrument", "python", "-m", "llama_cpp.server"],
            "llama_cpp.server",
        ),
        ("python", ["python", "-m", "vllm.entrypoints.openai.api_server"], "vLLM"),
        ("vllm", ["/venv/bin/python", "/venv/bin/vllm", "serve"], "vLLM"),
        ("omlx", ["omlx"], "oMLX"),
        ("python", ["python", "-c", "import vllm"], None),
        ("vim", ["vim", "llama-server"], None),
        ("python", ["python"], None),
        ("zombie", [], None),
    ],
)
def test_an_engine_is_known_by_its_program_and_not_by_words_in_its_arguments(
    name: str, command: list[str], engine: str | None
) -> None:
    assert engine_of(name, command) == engine


def test_a_real_process_is_found_by_name_and_pid_alone_and_a_child_of_ours_is_none_of_the_others(
    tmp_path: Path,
) -> None:
    script = tmp_path / "llama-server"
    script.write_text("print('up', flush=True); input()")
    command = [sys.executable, str(script), "--api-key", "hunter2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert engines_among([psutil.Process(process.pid)]) == [Running("llama-server", process.pid)]
        assert process.pid not in {each.pid for each in running_engines()}
        process.communicate("\n", timeout=30)


@pytest.mark.parametrize(
    ("answers", "engine"),
    [
        ({"/props": {"default_generation_settings": {}}, "/v1/models": MODELS}, "llama-server"),
        ({"/api/version": {"version": "0.9.0"}, "/v1/models": MODELS}, "Ollama"),
        ({"/v1/models": {"data": [{"id": "x", "owned_by": "vllm"}]}}, "vLLM"),
        ({"/v1/models": {"data": [{"id": "x", "owned_by": "organization_owner"}]}}, "LM Studio"),
        ({"/v1/models": MODELS}, "an OpenAI-compatible server"),
        (
            {
                "/props": "x",
                "/openapi.json": {"info": [1]},
                "/v1/models": {"data": ["x", {"owned_by": ["x"]}, {"owned_by": "vllm"}]},
            },
            "vLLM",
        ),
        ({"/openapi.json": {"info": {"title": 7}}}, None),
        ({"/props": [], "/api/version": {"version": "1", "name": "shop"}, "/v1/models": {"data": "x"}}, None),
        ({}, None),
    ],
)
def test_a_server_is_known_by_what_it_answers(answers: dict[str, Any], engine: str | None) -> None:
    with http_server(answers) as (port, asked):
        assert listening_engine(port) == (None if engine is None else Listening(engine, port))
        assert all(path.startswith("GET ") for path in asked.paths)
        assert set(asked.bodies) == {b""}


def test_a_llama_cpp_server_is_not_asked_for_its_models_which_would_break_off_a_stream() -> None:
    description = {"info": {"title": "🦙 llama.cpp Python API"}, "paths": {}}
    with http_server({"/openapi.json": description, "/v1/models": MODELS}) as (port, asked):
        assert listening_engine(port) == Listening("llama_cpp.server", port)
        assert "GET /v1/models" not in asked.paths


def test_a_server_that_is_too_busy_to_describe_itself_is_not_asked_for_its_models() -> None:
    with raw_server() as (port, asked):
        assert listening_engine(port) is None
    assert [line.split()[1] for line in asked if line] == [b"/props"]


def test_json_of_absurd_depth_is_no_engine_and_hides_no_other_port() -> None:
    deep = b"[" * 200_000
    header = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(deep)
    with raw_server(header, deep) as (bad, _), http_server({"/v1/models": MODELS}) as (good, _):
        (check,) = neighbour_checks(list, [bad, good])
    assert check.id == f"neighbour.port.{good}"


def test_a_server_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_specdecode.doctor.neighbours._ALL_SECONDS", 0.3)
    with raw_server(b"HTTP/1.1 200 OK\r\n", again=b"X") as (port, _):
        (check,) = neighbour_checks(list, [port])
    assert check.id == "neighbour.none"


def test_a_port_on_which_nothing_listens_is_passed_over() -> None:
    with free_port() as port:
        assert listening_engine(port) is None


def test_what_is_found_is_told_with_what_it_means_and_no_model_name() -> None:
    with http_server({"/v1/models": MODELS}) as (port, _):
        checks = neighbour_checks(lambda: [Running("llama-server", 7), Running("mlx_lm.server", 9)], [port])
    told = {check.id: check.detail for check in checks}
    assert told["neighbour.process.7"] == (
        "runs as process 7. This engine runs in another process: the wrapper does not see it; it has counters of its "
        "own (/metrics, if it was started with --metrics) that a collector can scrape."
    )
    assert "opentelemetry-instrument" in told["neighbour.process.9"]
    assert f"neighbour.port.{port}" in told
    assert "my-secret-model" not in str(checks)
    assert {check.status for check in checks} == {"ok"}


def test_none_is_told_too() -> None:
    with free_port() as port:
        (check,) = neighbour_checks(list, [port])
    assert check.detail == f"none found among your processes and on ports {port}"
