"""llama_cpp.server with several models, of which it holds one at a time: each generation is of the one that ran."""

from __future__ import annotations

import gc
import statistics
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.arrived import active, breaks_the_contract, total
from tests.e2e.llama_cpp_server import running_several, seconds_waited, skip_unless_installed, stops_quietly
from tests.e2e.servers import ASKED, CHAT, PROMPT_ONLY, TEXT, Server
from tests.otlp_receiver import Received, ReceivedSpan

skip_unless_installed()

from otel_specdecode.testing.capture import capture  # noqa: E402
from otel_specdecode.tiny_pair import model_path  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.llama_cpp, pytest.mark.slow]

BIG, SMALL, UNKNOWN = "big", "small", "gpt-4-made-up"
FILES = {BIG: "target", SMALL: "draft", UNKNOWN: "target"}
"""Names of the files behind what clients ask for. What the server does not have is its first model."""

IN_TURN = (BIG, *(SMALL, SMALL, BIG, BIG, SMALL, SMALL, UNKNOWN, BIG) * 2)
"""From the second on, each model is asked for twice, of which the first time loads it."""

LONG_CONTEXT = 512 * 64
"""Takes a while to make."""
ROUTING_S = 0.1


@dataclass(frozen=True)
class Asked:
    """A request's span and the generation's.

    Attributes:
        alias: The model that the client asked for.
    """

    alias: str
    request: ReceivedSpan
    generation: ReceivedSpan

    def value(self, key: str) -> Any:
        """An attribute of the generation."""
        return self.generation.attributes[key]


def models(folder: Path, context: int = LONG_CONTEXT) -> list[dict[str, Any]]:
    """The server's settings of two models, the second with prompt lookup."""
    files = {name: convert(model_path(name), folder / f"{name}.gguf", "f32") for name in set(FILES.values())}
    big, small = ({"model": str(files[FILES[alias]]), "model_alias": alias, "n_ctx": context} for alias in (BIG, SMALL))
    return [big, {**small, "draft_model": "prompt-lookup-decoding"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    with running_several(models(folder), folder) as server:
        yield server
        assert stops_quietly(server)


@pytest.fixture(scope="module")
def asked(server: Server) -> Sequence[Asked]:
    """All that is asked of the server, one request after another."""

    def ask(alias: str) -> Asked:
        got = server.post(TEXT, {**ASKED[TEXT], "max_tokens": 2, "model": alias})
        assert (got.status, got.body["model"]) == (200, alias)
        return Asked(alias, *server.spans(got.trace_id))

    return [ask(alias) for alias in IN_TURN]


def test_a_generation_is_that_of_the_model_that_ran_however_often_they_change(asked: Sequence[Asked]) -> None:
    for each in asked:
        file = FILES[each.alias]
        assert each.generation.name == f"text_completion {file}"
        assert each.value("gen_ai.request.model") == each.value("gen_ai.response.model") == file
        assert each.value("specdecode.method") == ("prompt_lookup" if each.alias == SMALL else "none")


def test_metrics_of_each_model_are_under_the_name_of_its_file(server: Server, asked: Sequence[Asked]) -> None:
    received = server.received
    assert received.wait_for(lambda got: total(got, "specdecode.request.started") == len(asked))
    started = {
        labels["gen_ai.request.model"]: number for labels, number in received.latest("specdecode.request.started")
    }
    assert started == Counter(FILES[each.alias] for each in asked)
    assert received.wait_for(lambda got: active(got) == 0)
    assert breaks_the_contract(received) == []
    assert PROMPT_ONLY not in str(received.requests)


def test_a_model_that_comes_back_is_the_one_it_was_and_is_not_the_other(server: Server, asked: Sequence[Asked]) -> None:
    ids: dict[str, set[str]] = {file: set() for file in FILES.values()}
    for each in asked:
        ids[FILES[each.alias]].add(each.value("specdecode.manifest.id"))
    assert [len(each) for each in ids.values()] == [1, 1]
    assert len(set.union(*ids.values())) == len(ids)

    def told(received: Received) -> set[tuple[str, str]]:
        points = received.latest("specdecode.config.info")
        return {(labels["gen_ai.request.model"], labels["specdecode.manifest.id"]) for labels, _ in points}

    assert server.received.wait_for(lambda got: len(told(got)) == len(ids))
    assert told(server.received) == {(file, each) for file, (each,) in ids.items()}
    events = server.received.events("specdecode.manifest")
    assert Counter(each["specdecode.manifest.id"] for each in events) == Counter(each for (each,) in ids.values())


def test_loading_a_model_is_a_part_of_the_time_in_the_queue(asked: Sequence[Asked]) -> None:
    before = [(each.generation.start - each.request.start) / 1e9 - seconds_waited(each.generation) for each in asked]
    assert abs(statistics.median(before)) < ROUTING_S, "of the time before a generation, what is not waiting is short"
    waited = [seconds_waited(each.generation) for each in asked[1:]]
    assert statistics.median(waited[::2]) > 3 * statistics.median(waited[1::2])


def test_a_model_that_was_replaced_is_not_kept_in_memory(tmp_path: Path) -> None:
    """The server's own holder of models, in this process, where it can be seen what is still alive."""
    from llama_cpp.server.model import LlamaProxy
    from llama_cpp.server.settings import ModelSettings

    def gone(proxy: Any, alias: str) -> weakref.ref[Any]:
        llama = proxy(alias)
        list(llama.create_completion("once", max_tokens=3, stream=True))
        llama.create_chat_completion(ASKED[CHAT]["messages"], max_tokens=2)
        with pytest.raises(ValueError, match="exceed context window"):
            llama.create_completion("once " * 600)
        return weakref.ref(llama)

    quiet = {"n_threads": 1, "n_threads_batch": 1, "verbose": False}
    with capture() as telemetry:
        proxy = LlamaProxy([ModelSettings(**quiet, **each) for each in models(tmp_path, context=512)])
        replaced: Sequence[weakref.ref[Any]] = [gone(proxy, alias) for alias in (BIG, SMALL, BIG, SMALL, BIG)]
        gc.collect()
        assert [each() is None for each in replaced] == [True] * 4 + [False]
        assert len(telemetry.spans()) == 3 * len(replaced)
        proxy.free()
