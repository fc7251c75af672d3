"""An engine that is not as its hooks expect: its server serves as ever, one warning says so, and metrics show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import llama_cpp_server, mlx_lm_server
from tests.e2e.arrived import is_generation, total
from tests.e2e.injected import injecting
from tests.e2e.parity import Question, differences
from tests.e2e.servers import ASKED, SOON, Server
from tests.otlp_receiver import Received

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OTHER_PARAMETERS = """
import wrapt

def change(module):
    holder = {holder}
    original = holder.{name}

    def {name}(*args, **kwargs):
        return original(*args, **kwargs)

    holder.{name} = {name}

def run():
    wrapt.register_post_import_hook(change, {module!r})
"""
"""Replaces a function of an engine by one that does the same and has lost the names of its parameters."""

TOLD = "is not as expected (TypeError); generation is not affected"


QUESTIONS = [
    Question(path, {**body, "max_tokens": 8, "temperature": 0, "stream": stream})
    for path, body in ASKED.items()
    for stream in (False, True)
]
"""A completion and a chat, whole and as a stream, that have the same answer each time."""


def warnings(server: Server) -> list[str]:
    return [line.split("WARNING - ")[-1] for line in server.log.read_text().splitlines() if "is not affected" in line]


def generations(received: Received) -> float:
    """Generations that were recorded, by spans or by metrics."""
    return max(sum(map(is_generation, received.spans())), total(received, "specdecode.request.started"))


@pytest.mark.llama_cpp
def test_llama_cpp_server_serves_without_generations_where_a_method_has_other_parameters(tmp_path: Path) -> None:
    llama_cpp_server.skip_unless_installed()
    code = OTHER_PARAMETERS.format(module="llama_cpp.llama", holder="module.Llama", name="create_completion")
    (tmp_path / "injected").mkdir()
    model, variables = llama_cpp_server.target(tmp_path), {**SOON, **injecting(code, tmp_path / "injected")}
    with (
        llama_cpp_server.running(model, tmp_path / "bare", *llama_cpp_server.LOOKUP, instrumented=False) as bare,
        llama_cpp_server.running(model, tmp_path / "broken", *llama_cpp_server.LOOKUP, variables=variables) as broken,
    ):
        assert differences(bare, broken, QUESTIONS, llama_cpp_server.OF_THE_MOMENT) == []
        assert broken.received.wait_for(lambda got: total(got, "http.server.duration") == len(QUESTIONS))
        assert generations(broken.received) == 0
    assert warnings(broken) == [f"this version of llama-cpp-python is not watched: Llama {TOLD}"]


@contextmanager
def mlx_pair(folder: Path, module: str, holder: str, name: str) -> Iterator[tuple[Server, Server]]:
    """Run mlx_lm.server with a draft twice: bare, and instrumented with a function that has other parameters."""
    (folder / "injected").mkdir()
    code = OTHER_PARAMETERS.format(module=module, holder=holder, name=name)
    variables = {**SOON, **injecting(code, folder / "injected")}
    with (
        mlx_lm_server.running(folder / "bare", *mlx_lm_server.DRAFT, instrumented=False) as bare,
        mlx_lm_server.running(folder / "broken", *mlx_lm_server.DRAFT, variables=variables) as broken,
    ):
        yield bare, broken


@pytest.mark.mlx
def test_mlx_lm_server_serves_without_generations_where_a_step_function_has_other_parameters(tmp_path: Path) -> None:
    mlx_lm_server.skip_unless_installed()
    with mlx_pair(tmp_path, "mlx_lm.generate", "module", "speculative_generate_step") as (bare, broken):
        assert differences(bare, broken, QUESTIONS) == []
        assert broken.received.wait_for(lambda got: total(got, "http.server.request.duration") == len(QUESTIONS))
        assert generations(broken.received) == 0
    assert warnings(broken) == [f"this version of mlx-lm is not watched: mlx_lm.generate {TOLD}"]


@pytest.mark.mlx
def test_mlx_lm_server_serves_with_generations_alone_where_it_has_other_parameters_itself(tmp_path: Path) -> None:
    mlx_lm_server.skip_unless_installed()
    with mlx_pair(tmp_path, "mlx_lm.server", "module.ResponseGenerator", "_serve_single") as (bare, broken):
        assert differences(bare, broken, QUESTIONS) == []
        assert broken.received.wait_for(lambda got: generations(got) == len(QUESTIONS))
        assert total(broken.received, "http.server.request.duration") == 0
    assert warnings(broken) == [f"this version of mlx-lm is not watched: mlx_lm.server {TOLD}"]
