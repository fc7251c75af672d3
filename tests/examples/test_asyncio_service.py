"""MLX on an event loop, one of whose tasks is cancelled."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from tests.examples.running import WITHOUT_EXIT_HANDLERS, each, finish_reasons, generations, requests_counted, run
from tests.otlp_receiver import Received

pytestmark = pytest.mark.mlx


@pytest.fixture(scope="module")
def ran() -> tuple[str, Received]:
    return run("asyncio_service.py", command=(sys.executable, "-c", WITHOUT_EXIT_HANDLERS))


def test_the_cancelled_task_alone_has_no_answer(ran: tuple[str, Received]) -> None:
    printed, received = ran
    first, *answers = printed.splitlines()
    assert first == "CancelledError"
    assert answers[-1].startswith("7, 8, 9")
    assert finish_reasons(received) == ["closed", "stop", "stop", "stop"]
    assert set(each(received, "specdecode.mode")) == {"speculative"}
    assert {span.status for span in generations(received)} == {"UNSET"}


def test_each_generation_is_a_child_of_its_tasks_span(ran: tuple[str, Received]) -> None:
    _, received = ran
    requests = {span.span_id: span.trace_id for span in received.spans() if span.name == "request"}
    assert len(set(requests.values())) == 4
    assert {span.parent_id: span.trace_id for span in generations(received)} == requests


def test_everything_is_exported_before_the_program_ends(ran: tuple[str, Received]) -> None:
    _, received = ran
    assert len(generations(received)) == requests_counted(received) == 4
