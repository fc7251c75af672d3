"""llama.cpp's own server, as a second counter of the same rounds: started on loopback, asked, read and stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from tests.ports import free_port

VARIABLE = "OTEL_SPECDECODE_LLAMA_SERVER"
START_S = 60.0
ANSWER_S = 60.0
STOP_S = 10.0
POLL_S = 0.02

_COUNTER = re.compile(r'^llamacpp:spec_decode_num_(\w+)_total(?:\{position="(\d+)"\})? (\d+)$', re.MULTILINE)


class Step(NamedTuple):
    """One target pass after the prompt's, as the server tells it: a round, or a pass without a draft (proposed 0)."""

    proposed: int
    accepted: int
    emitted: int


@dataclass(frozen=True)
class Answer:
    """What one request got.

    Attributes:
        tokens: Every token sent, EOS and those of a stop string included.
        steps: Passes in order. The first token belongs to none: it comes out of the prompt's pass.
        stop: `limit`, `eos` or `word`.
    """

    tokens: list[int]
    steps: list[Step]
    stop: str


@dataclass(frozen=True)
class Counters:
    """The server's `spec_decode_*` counters since its start.

    Attributes:
        drafts: Rounds that were verified.
        draft_tokens: Tokens proposed.
        accepted_tokens: Tokens accepted.
        accepted_by_position: The same by place in the draft; empty before the first round.
    """

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_by_position: tuple[int, ...]


@dataclass(frozen=True)
class LlamaServer:
    """A running server with one slot.

    Attributes:
        port: On loopback.
    """

    port: int

    def complete(self, prompt: list[int], n: int, stop: Sequence[str] = ()) -> Answer:
        """Continue `prompt` greedily by at most `n` tokens, without reusing an earlier prompt's cache."""
        asked = {
            "prompt": prompt,
            "n_predict": n,
            "stop": list(stop),
            "temperature": 0,
            "repeat_penalty": 1,
            "cache_prompt": False,
            "stream": True,
            "timings_per_token": True,
        }
        lines = self._ask("POST", "/completion", json.dumps(asked)).decode().splitlines()
        *sent, last = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
        return Answer([token for each in sent for token in each["tokens"]], _steps(sent), last["stop_type"])

    def counters(self) -> Counters:
        """Read `/metrics`, which the server answers only after the counts of a finished request are in."""
        values: dict[str, list[int]] = {}
        for name, _, value in _COUNTER.findall(self._ask("GET", "/metrics").decode()):
            values.setdefault(name, []).append(int(value))
        (drafts,), (proposed,), (accepted,) = values["drafts"], values["draft_tokens"], values["accepted_tokens"]
        return Counters(drafts, proposed, accepted, tuple(values.get("accepted_tokens_per_pos", ())))

    def healthy(self) -> bool:
        """Whether the models are loaded."""
        try:
            self._ask("GET", "/health")
        except OSError:
            return False
        return True

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise ConnectionError(f"llama-server answers {response.status} to {method} {path}")
        return answer


def program() -> str | None:
    """The llama-server to run: the one that the environment names, else one on PATH."""
    return os.environ.get(VARIABLE) or shutil.which("llama-server")


@contextmanager
def running(target: Path, draft: Path, k: int, *, n_ctx: int, log: Path) -> Iterator[LlamaServer]:
    """Run a server of a target that verifies up to `k` tokens of a draft model a round, for the length of a block.

    Raises:
        RuntimeError: It did not start; the message ends with the last of its log.
    """
    server = LlamaServer(free_port())
    address = ["--host", "127.0.0.1", "--port", str(server.port)]
    command = [program() or "llama-server", *address, *_arguments(target, draft, k, n_ctx)]
    # It takes settings from variables too: none of the user's may change what is counted.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables) as process,
    ):
        try:
            _wait(process, server, log)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _arguments(target: Path, draft: Path, k: int, n_ctx: int) -> list[str]:
    """One slot, one thread, the same attention code as llama-cpp-python's default, and drafts that are never cut."""
    models = ["--model", str(target), "--spec-type", "draft-simple", "--spec-draft-model", str(draft)]
    drafts = ["--spec-draft-n-max", str(k), "--spec-draft-n-min", "0", "--spec-draft-p-min", "0"]
    threads = [part for name in ("-t", "-tb", "-td", "-tbd") for part in (name, "1")]
    return [
        *models,
        *drafts,
        *threads,
        *("--parallel", "1", "--ctx-size", str(n_ctx), "--flash-attn", "off"),
        *("--cache-ram", "0", "--fit", "off", "--no-warmup", "--no-ui", "--metrics", "--offline"),
    ]


def _wait(process: subprocess.Popen[bytes], server: LlamaServer, log: Path) -> None:
    for _ in range(round(START_S / POLL_S)):
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if server.healthy():
                return
        else:
            break
    raise RuntimeError("llama-server did not start: " + log.read_text(errors="replace")[-2000:])


def _steps(sent: list[dict[str, Any]]) -> list[Step]:
    """Group the tokens after the first by pass: all tokens of a round carry the totals up to and with that round."""
    totals = [(each["timings"].get("draft_n", 0), each["timings"].get("draft_n_accepted", 0)) for each in sent]
    steps: list[Step] = []
    for (proposed, accepted), (proposed_before, accepted_before) in zip(totals[1:], totals, strict=False):
        if proposed > proposed_before:
            steps.append(Step(proposed - proposed_before, accepted - accepted_before, 1))
        elif steps and steps[-1].emitted <= steps[-1].accepted:
            steps[-1] = steps[-1]._replace(emitted=steps[-1].emitted + 1)
        else:
            steps.append(Step(0, 0, 1))
    return steps
