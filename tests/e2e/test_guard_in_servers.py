"""A guard in both engines' own servers with no line of code: switched off and on while they run, and bad policies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")

from otel_specdecode.guard.trail import read_trail
from otel_specdecode.guard_from_environment import GUARD_POLICY
from otel_specdecode.telemetry.names import Attr
from tests.e2e import llama_cpp_server as llama
from tests.e2e import mlx_lm_server as mlx
from tests.e2e.arrived import breaks_the_contract, total
from tests.e2e.servers import ASKED, CHAT, LAUNCHER, SOON, TEXT, Server
from tests.otlp_receiver import ReceivedSpan

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CACHE_REUSE_SHORT = "cache_reuse_short"
"""A known bug of MLX-LM's server: of an answer that was drafted, the last token may be left out of the prompt cache."""

SAID = ("Tell me a story about a fox.", "And then?", "Count from 7 to 22.", "List 5 animals.", "And then?")
SWITCHES = ("on", "off", "off", "on", "on")

POLICY = """
mode = "enforce"
flag_file = "speculation"
[baseline]
share = 0.0
most_share = 0.0
[audit]
folder = "audit"
"""


class Flag:
    """A feature flag in a file that a server watches."""

    def __init__(self, folder: Path) -> None:
        """Write a policy that names it."""
        self.policy = folder / "policy.toml"
        self.policy.write_text(POLICY)
        self._file = folder / "speculation"
        self._state, self._switches = "on", 0

    @property
    def variables(self) -> Mapping[str, str]:
        """What a server needs to know."""
        return {**SOON, GUARD_POLICY: str(self.policy)}

    def turn(self, state: str, server: Server) -> None:
        """Switch, and wait until the server has taken it in."""
        if state == self._state:
            return
        self._file.write_text(f"{state}\n")
        self._state, self._switches = state, self._switches + 1
        wanted = self._switches
        metric = "specdecode.guard.transitions"
        assert server.received.wait_for(
            lambda received: sum(value for _, value in received.latest(metric)) >= wanted, 60
        ), "the server did not see its flag file"


def hazards(span: ReceivedSpan) -> Any:
    """The hazards of a generation."""
    return span.attributes.get(Attr.SPECDECODE_HAZARD_IDS, ())


@pytest.mark.mlx
@pytest.mark.timeout(300)
def test_a_talk_goes_on_across_switches_with_the_tokens_of_its_mode(tmp_path: Path) -> None:
    """As a server answers that ran that mode all the time, from a prompt cache that is used in every turn."""
    mlx.skip_unless_installed()
    for name in ("guarded", "on", "off"):
        (tmp_path / name).mkdir()
    flag = Flag(tmp_path)
    alone = {"on": ("--draft-model", mlx.DRAFT[1]), "off": ()}
    with (
        mlx.running(tmp_path / "guarded", *mlx.DRAFT, variables=flag.variables) as server,
        mlx.running(tmp_path / "on", *alone["on"]) as speculating,
        mlx.running(tmp_path / "off", *alone["off"]) as plain,
    ):
        others = {"on": speculating, "off": plain}
        messages: list[dict[str, str]] = []
        compared, drafted = [], []
        for said, state in zip(SAID, SWITCHES, strict=True):
            flag.turn(state, server)
            messages.append({"role": "user", "content": said})
            asked = {"messages": messages, "max_tokens": 30, "temperature": 0.0}
            answers = {name: each.post(CHAT, asked) for name, each in {"guarded": server, **others}.items()}
            spans = {
                "guarded": server.spans(answers["guarded"].trace_id)[1],
                state: others[state].spans(answers[state].trace_id)[1],
            }
            own = spans["guarded"].attributes
            assert own["specdecode.mode"] == {"on": "speculative", "off": "autoregressive"}[state]
            assert own.get("specdecode.fallback.reason") == {"on": None, "off": "feature_flag"}[state]
            texts = {name: answer.body["choices"][0]["message"]["content"] for name, answer in answers.items()}
            if not any(CACHE_REUSE_SHORT in hazards(span) for span in spans.values()):
                assert texts["guarded"] == texts[state], said
                compared.append(state)
            if state == "on":
                drafted.append(own["specdecode.draft.accepted_tokens"])
            if len(messages) > 1:
                assert own["gen_ai.usage.cache_read.input_tokens"] > 0
            messages.append({"role": "assistant", "content": texts["guarded"]})
        assert {"on", "off"} <= set(compared)
        assert min(drafted) > 0
        assert breaks_the_contract(server.received) == []
        assert mlx.stops_quietly(server)
    entries = read_trail(tmp_path / "audit").entries
    assert [entry.transition.after for entry in entries] == ["open", "closed"]


@pytest.mark.llama_cpp
@pytest.mark.timeout(300)
def test_prompt_lookup_is_switched_off_and_on_while_the_server_runs(tmp_path: Path) -> None:
    """With the tokens of a server that ran that mode all the time."""
    llama.skip_unless_installed()
    model = llama.target(tmp_path)
    flag = Flag(tmp_path)
    with (
        llama.running(model, tmp_path / "guarded", *llama.LOOKUP, variables=flag.variables) as server,
        llama.running(model, tmp_path / "on", *llama.LOOKUP) as speculating,
        llama.running(model, tmp_path / "off") as plain,
    ):
        for said, state in zip(SAID, SWITCHES, strict=True):
            flag.turn(state, server)
            asked = {"prompt": said, "max_tokens": 24, "temperature": 0.0}
            answer = server.post(TEXT, asked)
            other = {"on": speculating, "off": plain}[state].post(TEXT, asked)
            assert answer.body["choices"] == other.body["choices"]
            found = server.spans(answer.trace_id)[1].attributes
            assert found["specdecode.mode"] == {"on": "speculative", "off": "autoregressive"}[state]
            assert found["specdecode.method"] == "prompt_lookup"
        assert llama.stops_quietly(server)


COMMANDS = {
    "mlx": [str(Path(sys.executable).parent / "mlx_lm.server"), "--model", "none"],
    "llama_cpp": [sys.executable, "-m", "llama_cpp.server", "--model", "none"],
}


@pytest.mark.parametrize(
    "engine",
    [pytest.param("mlx", marks=pytest.mark.mlx), pytest.param("llama_cpp", marks=pytest.mark.llama_cpp)],
)
def test_a_server_does_not_start_with_a_policy_that_cannot_be_used(engine: str, tmp_path: Path) -> None:
    """It says in which line, and ends with the code of a wrong use."""
    {"mlx": mlx, "llama_cpp": llama}[engine].skip_unless_installed()  # type: ignore[attr-defined]
    policy = tmp_path / "policy.toml"
    policy.write_text('mode = "enforce"\n[probe]\nshare = 2\n')
    variables = {**os.environ, GUARD_POLICY: str(policy), "OTEL_TRACES_EXPORTER": "none"}
    variables |= {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    done = subprocess.run(
        [str(LAUNCHER), *COMMANDS[engine]], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert f"{policy}:3: probe.share must be a number" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.mlx
def test_a_server_goes_on_without_a_guard_where_its_policy_says_so(tmp_path: Path) -> None:
    """The log says so, and a metric, for as long as it runs."""
    mlx.skip_unless_installed()
    policy = tmp_path / "policy.toml"
    policy.write_text('on_error = "disable"\n[probe]\nshare = 2\n')
    with mlx.running(tmp_path / "server", *mlx.DRAFT, variables={**SOON, GUARD_POLICY: str(policy)}) as server:
        answer = server.post(TEXT, {**ASKED[TEXT], "max_tokens": 8})
        assert server.spans(answer.trace_id)[1].attributes["specdecode.mode"] == "speculative"
        server.received.wait_for(lambda received: bool(received.latest("specdecode.guard.disabled")), 20)
        assert total(server.received, "specdecode.guard.disabled") == 1
        log = server.log.read_text()
        assert "there is no guard" in log
        assert "policy.toml:3: probe.share" in log
        assert str(tmp_path) not in log
