"""MLX-LM's own server: what it refuses, and what fails, has the status that the client sees."""

from __future__ import annotations

from contextlib import nullcontext
from http.client import BadStatusLine
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant
from tests.engines.mlx_lm.local_server import LocalServer, local_server
from tests.engines.mlx_lm.served import (
    ANSWERS_WHAT_IT_REFUSES,
    ASKED,
    CHAT,
    CHATS,
    DRAFT,
    TEXT,
    finish_reason,
    of,
    pair,
    until,
    usage,
)
from tests.engines.spans import attributes

pytestmark = pytest.mark.mlx


@pytest.mark.parametrize(
    ("path", "body", "method", "name", "status"),
    [
        pytest.param(TEXT, "{", "", f"POST {TEXT}", 400, marks=CHATS),
        pytest.param(TEXT, {"max_tokens": 3}, "", f"POST {TEXT}", 400, marks=ANSWERS_WHAT_IT_REFUSES),
        pytest.param(TEXT, {"max_tokens": "many"}, "", f"POST {TEXT}", 400, marks=ANSWERS_WHAT_IT_REFUSES),
        (CHAT, {**ASKED[CHAT], "model": "/nowhere/at-all"}, "", f"POST {CHAT}", 404),
        ("/v1/nothing?secret=1", {}, "", "POST", 404),
        ("/nothing", None, "", "GET", 404),
        ("/health", None, "", "GET /health", 200),
        (TEXT, None, "OPTIONS", f"OPTIONS {TEXT}", 204),
        (TEXT, None, "PUT", "PUT", 501),
        (TEXT, None, "BREW", "HTTP", 501),
    ],
)
def test_an_answer_without_a_generation(
    batching: LocalServer, telemetry: Telemetry, path: str, body: Any, method: str, name: str, status: int
) -> None:
    answer = batching.ask(path, body, method)
    request, generations = of(telemetry, answer.trace_id)
    found = attributes(request)
    assert answer.status == found[Attr.HTTP_RESPONSE_STATUS_CODE] == status
    assert (request.name, generations) == (name, [])
    assert found[Attr.URL_PATH] == path.partition("?")[0]
    assert "secret" not in str(found)
    assert request.status.status_code is (StatusCode.ERROR if status >= 500 else StatusCode.UNSET)
    assert found.get(Attr.ERROR_TYPE) == (str(status) if status >= 500 else None)
    (point,) = telemetry.points("http.server.request.duration")
    assert point.labels.get(Attr.HTTP_RESPONSE_STATUS_CODE) == status
    assert_conformant(spans=[request])
    assert telemetry.points("specdecode.request.started") == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        pytest.param(TEXT, [], 400, marks=ANSWERS_WHAT_IT_REFUSES),
        pytest.param(CHAT, ASKED[TEXT], 400, marks=ANSWERS_WHAT_IT_REFUSES),
        pytest.param(TEXT, {**ASKED[TEXT], "max_tokens": 0}, 400, marks=ANSWERS_WHAT_IT_REFUSES),
        pytest.param(TEXT, {"prompt": 7}, 404, marks=ANSWERS_WHAT_IT_REFUSES),
        pytest.param(CHAT, {"messages": []}, 404, marks=ANSWERS_WHAT_IT_REFUSES),
        (TEXT, {**ASKED[TEXT], "draft_model": "/nowhere/at-all"}, 404),
        pytest.param(TEXT, {**ASKED[TEXT], "seed": -1}, None, marks=ANSWERS_WHAT_IT_REFUSES),
    ],
)
def test_a_completion_that_is_refused_has_the_status_that_left_and_no_generation_and_the_server_goes_on(
    server: LocalServer, telemetry: Telemetry, path: str, body: Any, status: int | None
) -> None:
    """Without a status the server closes the connection, as where an engine does not take a seed."""
    sent = server.send(path, body)
    with nullcontext() if status else pytest.raises(BadStatusLine):
        assert sent.answer().status == status
    request, generations = of(telemetry, sent.trace_id)
    assert attributes(request).get(Attr.HTTP_RESPONSE_STATUS_CODE) == status
    assert request.status.status_code is (StatusCode.UNSET if status else StatusCode.ERROR)
    assert generations == []
    assert usage(pair(telemetry, answer := server.ask(TEXT, ASKED[TEXT]))[1]) == answer.usage
    assert telemetry.total("specdecode.request.started") == 1


@pytest.mark.parametrize(
    ("head", "status"), [(b"", 411), (b"Content-Length: many\r\n", 400)], ids=["no length", "a length that is none"]
)
@ANSWERS_WHAT_IT_REFUSES
def test_a_body_of_unknown_length_is_refused(
    batching: LocalServer, telemetry: Telemetry, head: bytes, status: int
) -> None:
    answer = batching.send_raw(f"POST {TEXT} HTTP/1.1\r\n".encode() + head + b"\r\n")
    assert answer.split()[1] == str(status).encode()
    until(telemetry.spans)
    assert attributes(telemetry.span())[Attr.HTTP_RESPONSE_STATUS_CODE] == status


@ANSWERS_WHAT_IT_REFUSES
def test_an_empty_prompt_fails_in_the_engine_and_a_server_with_a_draft_goes_on(
    drafting: LocalServer, telemetry: Telemetry
) -> None:
    sent = drafting.send(TEXT, {"prompt": "", "max_tokens": 2})
    with pytest.raises(BadStatusLine):
        sent.response()
    request, generation = pair(telemetry, sent.trace_id)
    for span in (request, generation):
        assert (span.status.status_code, attributes(span)[Attr.ERROR_TYPE]) == (StatusCode.ERROR, "ValueError")
    assert Attr.HTTP_RESPONSE_STATUS_CODE not in attributes(request)
    assert drafting.ask(TEXT, ASKED[TEXT]).status == 200


@ANSWERS_WHAT_IT_REFUSES
def test_an_empty_prompt_ends_what_generates_batches_and_all_that_follows_says_so(
    batching: LocalServer, telemetry: Telemetry
) -> None:
    """The server lives on without its generating thread: its own fault, told by each span and by its health."""
    sent = batching.send(TEXT, {"prompt": "", "max_tokens": 2})
    with pytest.raises(BadStatusLine):
        sent.response()
    request, generation = pair(telemetry, sent.trace_id)
    assert request.status.status_code is generation.status.status_code is StatusCode.ERROR
    assert finish_reason(generation) == "error"
    assert telemetry.total("specdecode.request.active") == 0

    refused, health = batching.ask(TEXT, ASKED[TEXT]), batching.ask("/health")
    assert (refused.status, health.status) == (404, 503)
    for answer, code in ((refused, StatusCode.UNSET), (health, StatusCode.ERROR)):
        request, generations = of(telemetry, answer.trace_id)
        assert attributes(request)[Attr.HTTP_RESPONSE_STATUS_CODE] == answer.status
        assert (request.status.status_code, generations) == (code, [])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("failure", [ZeroDivisionError, ConnectionResetError])
def test_a_model_that_fails_ends_generation_and_request_in_an_error(
    failure: type[Exception], stream: bool, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with an error of the kind that a client's going away is; a whole answer then has no status at all."""
    with local_server(*DRAFT) as server:
        assert server.ask(TEXT, ASKED[TEXT]).status == 200
        kind = type(server.generator.model_provider.model)

        def fails(*_: Any, **__: Any) -> Any:
            raise failure("quotes the prompt")

        monkeypatch.setattr(kind, "__call__", fails)
        sent = server.send(TEXT, {**ASKED[TEXT], "prompt": "Something else", "stream": stream})
        with nullcontext() if stream else pytest.raises(BadStatusLine):
            sent.response().read()
        monkeypatch.undo()
        assert server.ask(TEXT, ASKED[TEXT]).status == 200
    request, generation = pair(telemetry, sent.trace_id)
    for span in (request, generation):
        assert (span.status.status_code, attributes(span)[Attr.ERROR_TYPE]) == (StatusCode.ERROR, failure.__name__)
        assert "quotes" not in str(attributes(span)) + str(span.events) + str(span.status.description)
    assert attributes(request).get(Attr.HTTP_RESPONSE_STATUS_CODE) == (200 if stream else None)
    assert finish_reason(generation) == "error"


@pytest.mark.parametrize(
    ("request_line", "name", "path", "status"),
    [
        (b"GET http://alice:hunter2@models.example/health?x=hunter2 HTTP/1.1", "GET", "/health", 404),
        (b"GET /v1/models#hunter2?x HTTP/1.1", "GET /v1/models", "/v1/models", 200),
        (b"CONNECT alice:hunter2@models.example:443 HTTP/1.1", "CONNECT", "", 501),
        (b"HEAD /v1/models HTTP/1.1", "HEAD", "/v1/models", 501),
        (b"PUT /v1/models/some HTTP/1.1", "PUT", "/v1/models/some", 501),
        (b"hunter2", "HTTP", "", 400),
        (b"GET /health HTTP/3.0", "HTTP", "", 505),
        (b"GET /" + b"a" * 65_532, "HTTP", "", 414),
        (b"GET /health HTTP/1.1\r\n" + b"hunter2: 1\r\n" * 150, "GET /health", "/health", 431),
    ],
    ids=lambda value: value.decode()[:40] if isinstance(value, bytes) else None,
)
def test_whatever_a_client_sends_has_a_span_and_nothing_that_may_be_secret_on_it(
    batching: LocalServer, telemetry: Telemetry, request_line: bytes, name: str, path: str, status: int
) -> None:
    batching.send_raw(request_line + (b"" if status == 414 else b"\r\nHost: models.example\r\n\r\n"))
    until(telemetry.spans)
    span = telemetry.span()
    found = attributes(span)
    assert (span.name, found[Attr.URL_PATH], found[Attr.HTTP_RESPONSE_STATUS_CODE]) == (name, path, status)
    assert found[Attr.HTTP_REQUEST_METHOD] == name.split(maxsplit=1)[0].replace("HTTP", "_OTHER")
    assert "hunter2" not in str(found)
    (point,) = telemetry.points("http.server.request.duration")
    assert point.labels.get(Attr.HTTP_RESPONSE_STATUS_CODE) == status
    assert_conformant(metrics=telemetry.metrics_data())


def test_without_a_host_the_address_is_that_of_the_connection(batching: LocalServer, telemetry: Telemetry) -> None:
    batching.send_raw(b"GET /health HTTP/1.0\r\n\r\n")
    until(telemetry.spans)
    found = attributes(telemetry.span())
    assert (found[Attr.SERVER_ADDRESS], found[Attr.SERVER_PORT]) == ("127.0.0.1", batching.port)
