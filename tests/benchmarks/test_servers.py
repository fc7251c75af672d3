"""Real servers in turns: all variants are asked for the same, record and send, and rest while others are asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import numpy as np
import psutil
import pytest

from benchmarks import installed, servers
from benchmarks.results import Section
from benchmarks.servers import Found, in_turns, measure, real_servers
from benchmarks.servers_load import Shape, ask
from benchmarks.servers_running import Block, Server, Variant, sink
from benchmarks.servers_running import servers as running_servers
from tests.proc import wait_for

pytestmark = pytest.mark.source

SHAPES = (Shape("1 token", 2, (1, 1)), Shape("some tokens", 2, (6, 9), streamed=True))
NEEDS_ZERO_CODE = pytest.mark.skipif(find_spec("opentelemetry.distro") is None, reason="needs the [zero-code] extra")


# Clients


@contextmanager
def answering(kind: str, *lines: str, status: int = 200) -> Iterator[tuple[int, list[bytes]]]:
    """A server that gives one answer to all; its port, and the requests that it got."""
    got: list[bytes] = []
    body = "".join(f"{line}\n" for line in lines).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port, got
        finally:
            server.shutdown()
            thread.join()


def test_each_request_of_a_block_is_sent_once_whoever_of_the_clients_is_free() -> None:
    bodies = Shape("", 7, (32, 128), streamed=True).bodies()
    with answering("application/json", json.dumps({"usage": {"completion_tokens": 5}})) as (port, got):
        seconds, tokens = ask(port, bodies, clients=3)
    assert sorted(got) == sorted(bodies)
    assert tokens == 35
    assert seconds > 0


@pytest.mark.parametrize(
    "lines",
    [
        [
            'data: {"choices": [{"delta": {"content": "a"}}]}',
            'data: {"choices": [], "usage": {"completion_tokens": 3}}',
        ],
        [
            'data: {"choices": [{"delta": {"role": "assistant"}}]}',
            *['data: {"choices": [{"delta": {"content": "a"}}]}'] * 3,
            'data: {"choices": [{"delta": {}, "finish_reason": "length"}]}',
        ],
    ],
    ids=["with usage", "without"],
)
def test_the_tokens_of_a_stream_are_those_of_its_usage_or_its_events_with_text(lines: list[str]) -> None:
    with answering("text/event-stream", *lines, "data: [DONE]") as (port, _):
        assert ask(port, [b"{}"], clients=1)[1] == 3


def test_a_block_with_a_refused_request_has_no_figure() -> None:
    with answering("application/json", "{}", status=503) as (port, _), pytest.raises(RuntimeError, match="503"):
        ask(port, [b"{}"], clients=1)


def test_every_block_asks_for_the_same() -> None:
    shape = Shape("", 40, (32, 128), streamed=True)
    asked = [json.loads(body) for body in shape.bodies()]
    assert shape.bodies() == shape.bodies()
    assert sum("stream" in body for body in asked) == 20
    limits = [body["max_tokens"] for body in asked]
    assert 32 <= min(limits) < max(limits) <= 128


# Turns and figures


class Scripted(Server):
    """Takes a known time for a block instead of asking anybody."""

    def block(self, bodies: object, clients: int) -> Block:
        with self.log.open("a") as turns:
            turns.write(f"{self.port}\n")
        return Block(seconds=float(self.port), cpu_seconds=1.0, requests=2, tokens=20)


def test_a_variant_has_two_blocks_a_round_in_mirrored_places_and_the_first_round_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "turns"
    running = {name: Scripted(seconds, psutil.Process(), log) for seconds, name in enumerate("abc", 1)}
    found = in_turns(running, SHAPES[0], clients=1, rounds=12)
    turns = log.read_text().split()
    rounds = [turns[place : place + 6] for place in range(0, len(turns), 6)]
    assert len(rounds) == 13
    assert all(each[:3] == each[:2:-1] and sorted(each[:3]) == ["1", "2", "3"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert {name: each.seconds.tolist() for name, each in found.items()} == {
        "a": [2] * 12,
        "b": [4] * 12,
        "c": [6] * 12,
    }


def blocks(seconds: float, cpu: float, tokens: float, requests: float = 10.0) -> Found:
    return Found(*(np.full(5, each) for each in (seconds, cpu, requests, tokens)))


def test_a_server_under_the_target_misses_it_by_wall_time_and_by_cpu_time() -> None:
    section = Section("", "")
    found = {"bare": blocks(1.0, 0.9, 500), "ours, no export": blocks(1.0, 0.9, 500), "ours": blocks(1.25, 1.0, 500)}
    servers.tell(section, "server", found)
    bare, _, ours = section.rows
    assert (bare.value.value, bare.unit, bare.comparisons) == (500, "tokens/s", ())
    assert [each.estimate.value for each in ours.comparisons] == pytest.approx([0.8, 0.9, 0.8])
    verdicts = [each.target and each.target.verdict(each.estimate) for each in ours.comparisons]
    assert verdicts == ["missed", "missed", None]


def test_ours_beside_the_frameworks_instrumentation_is_held_against_that_alone() -> None:
    section = Section("", "")
    found = {
        "bare": blocks(1.0, 1.0, 500),
        "FastAPI": blocks(2.0, 2.0, 500),
        "FastAPI and ours": blocks(2.02, 2.02, 500),
    }
    servers.tell(section, "server", found)
    *_, framework, both = section.rows
    assert [each.target for each in framework.comparisons] == [None] * 3
    assert both.comparisons[0].what == "x FastAPI"
    assert both.comparisons[0].target is not None
    assert both.comparisons[0].target.verdict(both.comparisons[0].estimate) == "met"


def test_what_is_added_is_split_into_a_request_and_its_further_tokens() -> None:
    section = Section("", "")
    short = {"bare": blocks(1.0, 1.0, 10), "ours": blocks(1.0, 1.5, 10)}
    long = {"bare": blocks(1.0, 2.0, 110), "ours": blocks(1.0, 3.5, 110)}
    servers.tell_added(section, "added", short, long)
    assert [(row.variant, row.unit) for row in section.rows] == [
        ("ours over bare, a request of 1 token", "ms"),
        ("ours over bare, a further token", "us"),
    ]
    assert [row.value.value for row in section.rows] == pytest.approx([50.0, 10_000.0])


# Processes

ANSWERS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"usage": {"completion_tokens": 4}}')

HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def rests(server: Server) -> bool:
    """Whether a server is stopped: the signal takes effect a moment after it was sent."""
    return bool(server.process.status() == psutil.STATUS_STOPPED)


def test_a_server_rests_while_it_is_not_asked_and_is_gone_at_the_end(tmp_path: Path) -> None:
    command = (sys.executable, "-c", ANSWERS)
    with sink() as receiver, running_servers([Variant("bare", None)], command, tmp_path, receiver) as running:
        server = running["bare"]
        wait_for(lambda: rests(server))
        block = server.block([b"{}", b"{}"], clients=2)
        wait_for(lambda: rests(server))
    assert (block.requests, block.tokens) == (2, 8)
    assert block.seconds > 0
    assert 0 < block.cpu_seconds < 5
    assert server.process.poll() is not None


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no such model')")
    with (
        sink() as receiver,
        pytest.raises(RuntimeError, match="no such model"),
        running_servers([Variant("bare", None)], command, tmp_path, receiver),
    ):
        pass


def test_a_server_that_recorded_nothing_has_no_figure(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a pass could not be counted (KeyError); generation is not affected")
    with pytest.raises(RuntimeError, match="generation is not affected"):
        Server(0, psutil.Process(), log).check()


def test_a_variant_that_sent_nothing_has_no_figure() -> None:
    sender, silent = Variant("ours, loud", ("mlx_lm",)), Variant("ours", ("mlx_lm",))
    with sink() as receiver:
        url = f"http://127.0.0.1:{receiver.port}/ours%2C%20loud/v1/traces"
        with urlopen(Request(url, b"spans", method="POST")) as response:
            assert response.status == 200
        receiver.check(sender, ["traces"])
        with pytest.raises(RuntimeError, match="the server of ours sent no traces"):
            receiver.check(silent, ["traces"])


# Real servers


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mlx_lm.server, draft model", marks=pytest.mark.mlx),
        pytest.param("llama_cpp.server, AR", marks=pytest.mark.llama_cpp),
    ],
)
@NEEDS_ZERO_CODE
def test_a_real_server_is_measured_bare_and_instrumented(name: str, tmp_path: Path) -> None:
    found = {case.name: case for case in servers.cases(tmp_path)}
    if name not in found:
        pytest.skip("needs the [llama-cpp] extra and its server")
    section, case = Section("", ""), found[name]
    measure(section, case, SHAPES, rounds=1)
    variants = [variant.name for variant in case.variants()]
    assert [row.variant for row in section.rows[: len(variants)]] == variants
    assert all(row.value.value > 0 for row in section.rows if row.unit == "tokens/s")
    assert [row.unit for row in section.rows[2 * len(variants) :]] == ["ms", "us"] * (len(variants) - 1)


def test_what_is_not_installed_has_no_rows_and_the_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    section = real_servers()
    assert not section.rows
    assert "no rows for mlx_lm.server" in section.note
    assert "no rows for llama_cpp.server" in section.note
