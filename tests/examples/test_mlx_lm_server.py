"""MLX's own server without a line of code changed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
for module in ("opentelemetry.distro", "opentelemetry.exporter.otlp.proto.http"):
    pytest.importorskip(module, reason="needs the [zero-code] extra")

from otel_specdecode.tiny_pair import model_path  # noqa: E402
from tests.examples.running import ended, finish_reasons, generations, started  # noqa: E402
from tests.otlp_receiver import otlp_receiver  # noqa: E402
from tests.ports import free_port, listens  # noqa: E402
from tests.proc import wait_for  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.mlx, pytest.mark.slow]

SCRIPT = "mlx_lm_server.sh"
SHELL = ("bash",)


def test_the_clients_trace_and_tenant_reach_the_generation_and_the_server_is_stopped() -> None:
    port = free_port()
    with started(SCRIPT, command=SHELL, PORT=str(port)) as (process, received):
        code, printed, told = ended(process)
        assert not listens(port)
    assert code == 0, told
    answer, trace = printed.splitlines()
    assert json.loads(answer)["choices"][0]["message"]["content"].startswith("7, 8, 9")
    (generation,) = generations(received)
    (request,) = [span for span in received.spans() if span.span_id == generation.parent_id]
    assert trace == f"trace {request.trace_id}"
    assert (request.kind, request.name) == ("SERVER", "POST /v1/chat/completions")
    assert request.parent_id
    assert generation.trace_id == request.trace_id
    assert generation.attributes["specdecode.tenant.id"] == "acme"
    assert generation.attributes["specdecode.mode"] == "speculative"
    assert finish_reasons(received) == ["stop"]
    assert received.resources()["/v1/traces"]["service.name"] == "mlx-lm-server"


def test_a_script_that_is_told_to_stop_stops_its_server() -> None:
    options = ("--model", str(model_path("target")))
    with started(SCRIPT, *options, command=SHELL, PORT=str(free_port())) as (process, _):
        script = psutil.Process(process.pid)
        wait_for(lambda: len(script.children()) > 1, seconds=60)  # the server, and what the script waits with
        children = script.children(recursive=True)
        _, printed, _ = ended(process, signal.SIGTERM)
        assert not psutil.wait_procs(children, timeout=30)[1]
    assert not printed


def test_a_port_on_which_something_else_answers_is_left_alone() -> None:
    with otlp_receiver() as (url, other), started(SCRIPT, command=SHELL, PORT=url.rpartition(":")[2]) as (process, _):
        code, printed, told = ended(process)
    assert code == 1
    assert "something else answers on port" in told
    assert not printed
    assert not other.requests


def test_a_server_that_ends_by_itself_ends_the_script(tmp_path: Path) -> None:
    instead = tmp_path / "opentelemetry-instrument"
    instead.write_text("#!/bin/sh\nexit 2\n", encoding="utf-8")
    instead.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    with started(SCRIPT, "--model", "any", command=SHELL, PORT=str(free_port()), PATH=path) as (process, _):
        code, printed, _ = ended(process)
    assert code != 0
    assert not printed
