"""What is watched of llama_cpp.server, on the real application in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
for module in ("fastapi", "pydantic_settings", "sse_starlette", "starlette_context"):
    pytest.importorskip(module, reason=f"needs the {module} package")

from llama_cpp.server import app, errors  # noqa: E402

from otel_specdecode.engines.llama_cpp.server import ServerHooks, accepted  # noqa: E402

pytestmark = pytest.mark.llama_cpp

PLACES = (
    (errors.RouteErrorHandler, "get_route_handler"),
    (app, "get_event_publisher"),
    (app, "iterate_in_threadpool"),
)


@pytest.fixture
def hooks() -> ServerHooks:
    made = ServerHooks()
    for module in (errors, app):
        made.find(module)
    return made


def test_what_is_put_in_place_is_taken_out_again(hooks: ServerHooks) -> None:
    before = [getattr(*place) for place in PLACES]
    hooks.apply()
    assert not any(getattr(*place) is function for place, function in zip(PLACES, before, strict=True))
    hooks.restore()
    assert [getattr(*place) for place in PLACES] == before


def test_what_another_put_around_the_hooks_is_left_alone(hooks: ServerHooks, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks.apply()
    monkeypatch.setattr(app, "get_event_publisher", another := lambda: None)
    hooks.restore()
    assert app.get_event_publisher is another


def test_the_handler_of_a_route_knows_when_its_request_came_and_nobody_outside_of_it() -> None:
    class Route:
        def get_route_handler(self) -> Callable[[object], Coroutine[Any, Any, int | None]]:
            async def handle(_: object) -> int | None:
                return accepted()

            return handle

    module = ModuleType("llama_cpp.server.errors")
    module.RouteErrorHandler = Route  # type: ignore[attr-defined]
    hooks = ServerHooks()
    hooks.find(module)
    hooks.apply()
    handle = Route().get_route_handler()
    hooks.restore()

    before = time.perf_counter_ns()
    told = asyncio.run(handle(None))
    assert told is not None
    assert before <= told <= time.perf_counter_ns()
    assert accepted() is None
    assert asyncio.run(Route().get_route_handler()(None)) is None


@pytest.mark.parametrize("name", ["llama_cpp.server.errors", "llama_cpp.server.app"])
def test_a_module_with_another_inside_is_an_error_that_the_installer_reports(name: str) -> None:
    with pytest.raises(AttributeError):
        ServerHooks().find(ModuleType(name))
