"""Engines outside Python: what the collector makes of the pages of a llama-server and of vLLM."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from collector.names import label_name, metric_name, registry_metrics, series_labels, series_names
from otel_specdecode.telemetry.names import Enum, Metric, Metrics
from otel_specdecode.testing.fake import WORKED_EXAMPLE, Script, accepted_rounds
from otel_specdecode.tiny_pair import model_path
from tests.e2e.metrics_pages import OPEN_METRICS, Page, count, page, served
from tests.e2e.pipeline import (
    CONFIGURATIONS,
    Collector,
    Prometheus,
    collector,
    collector_program,
    eventually,
    free_ports,
    plain,
    prometheus,
)
from tests.e2e.services import service
from tests.engines.llama_cpp.llama_server import VARIABLE, program, running

pytestmark = pytest.mark.e2e

ROUNDS = Metrics.SPECDECODE_BRIDGE_ROUNDS
PROPOSED = Metrics.SPECDECODE_BRIDGE_PROPOSED_TOKENS
ACCEPTED = Metrics.SPECDECODE_BRIDGE_ACCEPTED_TOKENS
BY_POSITION = Metrics.SPECDECODE_BRIDGE_ACCEPTED_BY_POSITION
OUTPUT = Metrics.SPECDECODE_BRIDGE_OUTPUT_TOKENS
BRIDGED = tuple(metric for metric in registry_metrics() if metric.emitted_by == "collector")

OF_THE_SCRAPE = {
    "up",
    "scrape_duration_seconds",
    "scrape_samples_post_metric_relabeling",
    "scrape_samples_scraped",
    "scrape_series_added",
}
SCOPE_LABELS = {"otel_scope_name", "otel_scope_version", "otel_scope_schema_url"}
QWEN = "Qwen/Qwen3-8B"

SOURCES = {
    ROUNDS: "spec_decode_num_drafts_total",
    PROPOSED: "spec_decode_num_draft_tokens_total",
    ACCEPTED: "spec_decode_num_accepted_tokens_total",
}
OUTPUT_SOURCES = {"llamacpp": "tokens_predicted_total", "vllm": "generation_tokens_total"}

WORKED = """\
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 27
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total 32
# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter
llamacpp:spec_decode_num_accepted_tokens_total 18
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total 8
"""
"""Rounds of the worked example: [2, 3, 1, 4, 2, 0, 3, 3] accepted of 4 each."""


def series(metric: Metric) -> str:
    return metric_name(metric.name, metric.unit, metric.instrument)


def agent(
    folder: Path,
    database: Prometheus,
    *configurations: str,
    llama: tuple[str, ...] = (),
    vllm: tuple[str, ...] = (),
    **variables: str,
) -> AbstractContextManager[Collector]:
    """A collector on the node `here` that looks at its targets every second."""
    return collector(
        folder,
        *(configurations or ("agent.yaml", "bridge.yaml")),
        **{
            "OTELCOL_REMOTE_WRITE_URL": database.write_url,
            "OTELCOL_BRIDGE_INTERVAL": "1s",
            "OTELCOL_LLAMA_SERVERS": f"[{', '.join(llama)}]",
            "OTELCOL_VLLM": f"[{', '.join(vllm)}]",
            "OTEL_RESOURCE_ATTRIBUTES": "host.name=here",
            **variables,
        },
    )


@dataclass(frozen=True)
class Bridged:
    """What is in Prometheus of some engines.

    Attributes:
        pages: What each answers, by a name for it.
        absent: Address that nobody listens on.
    """

    database: Prometheus
    pages: dict[str, Page]
    absent: str

    def value(self, metric: Metric, engine: str, **labels: str) -> float | None:
        """The value of a metric of one engine; fails if more than one series has it."""
        wanted = {"instance": self.pages[engine].address, **labels}
        selector = ",".join(f'{label}="{value}"' for label, value in wanted.items())
        found = self.database.query(f"{series(metric)}{{{selector}}}")
        assert len(found) <= 1
        return found[0][1] if found else None


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridged]:
    """Every captured page, read by one collector, beside a target that is not there."""
    folder = tmp_path_factory.mktemp("bridge")
    key = folder / "key"
    key.write_text("sesame\n")
    names = ("llama-server-k4", "llama-server-k20", "llama-server-autoregressive", "vllm", "vllm.openmetrics")
    with ExitStack() as stack:
        database = stack.enter_context(prometheus(folder / "prometheus"))
        pages = {
            name: stack.enter_context(served(page(name), *([OPEN_METRICS] if "openmetrics" in name else [])))
            for name in names
        }
        absent = f"127.0.0.1:{free_ports(1)[0]}"
        named = f"{QWEN}@{pages['llama-server-k4'].address}"
        unnamed = tuple(pages[name].address for name in names[1:3])
        vllm = tuple(pages[name].address for name in names[3:])
        stack.enter_context(
            agent(folder, database, llama=(named, *unnamed), vllm=(*vllm, absent), OTELCOL_LLAMA_KEY_FILE=str(key))
        )
        assert eventually(lambda: len(database.query("up{job=~'llama-server|vllm'}")) == len(names) + 1)
        assert eventually(lambda: len(database.query(series(OUTPUT))) == len(names))
        yield Bridged(database, pages, absent)


LLAMA = ("llama-server-k4", "llama-server-k20", "llama-server-autoregressive")
VLLM = ("vllm", "vllm.openmetrics")


# What arrives


@pytest.mark.parametrize("engine", [*LLAMA, *VLLM])
def test_every_count_arrives_as_the_engines_own_page_has_it(bridged: Bridged, engine: str) -> None:
    prefix = "llamacpp" if engine in LLAMA else "vllm"
    text = bridged.pages[engine].text
    for metric, source in {**SOURCES, OUTPUT: OUTPUT_SOURCES[prefix]}.items():
        assert bridged.value(metric, engine) == count(text, f"{prefix}:{source}"), metric.name


def test_the_captured_counts_are_those_that_the_server_answered_to_each_request(bridged: Bridged) -> None:
    values = [bridged.value(metric, "llama-server-k4") for metric in (ROUNDS, PROPOSED, ACCEPTED, OUTPUT)]
    assert values == [74, 117 + 70 + 102, 29 + 40 + 33, 180]


@pytest.mark.parametrize("engine", [*LLAMA, *VLLM])
def test_accepted_tokens_by_position_add_up_to_all_of_them(bridged: Bridged, engine: str) -> None:
    found = bridged.database.query(f'{series(BY_POSITION)}{{instance="{bridged.pages[engine].address}"}}')
    places = {labels["specdecode_draft_position"]: value for labels, value in found}
    assert sum(places.values()) == bridged.value(ACCEPTED, engine)
    assert places.keys() <= set(Enum.SPECDECODE_DRAFT_POSITION)


def test_places_from_the_17th_on_are_one(bridged: Bridged) -> None:
    text = bridged.pages["llama-server-k20"].text
    places = [
        count(text, "llamacpp:spec_decode_num_accepted_tokens_per_pos_total", position=str(place))
        for place in range(20)
    ]
    assert sum(places[16:]) == 4
    for place in range(16):
        assert bridged.value(BY_POSITION, "llama-server-k20", specdecode_draft_position=str(place)) == places[place]
    assert bridged.value(BY_POSITION, "llama-server-k20", specdecode_draft_position="16+") == 4
    assert bridged.value(BY_POSITION, "llama-server-k20", specdecode_draft_position="16") is None


def test_the_engines_of_one_vllm_are_summed(bridged: Bridged) -> None:
    text = bridged.pages["vllm"].text
    each = [count(text, "vllm:spec_decode_num_drafts_total", engine=engine) for engine in ("0", "1")]
    assert each == [1_200_345, 8]
    assert bridged.value(ROUNDS, "vllm") == sum(each)
    assert bridged.value(BY_POSITION, "vllm", specdecode_draft_position="2") == 150_043 + 4


def test_an_engine_without_a_draft_has_counted_no_rounds_and_has_no_places(bridged: Bridged) -> None:
    engine = "llama-server-autoregressive"
    assert [bridged.value(metric, engine) for metric in (ROUNDS, PROPOSED, ACCEPTED, OUTPUT)] == [0, 0, 0, 180]
    assert bridged.value(BY_POSITION, engine) is None


# Names and labels


@pytest.mark.parametrize("metric", BRIDGED, ids=lambda metric: metric.name)
def test_names_and_labels_are_those_of_the_registry(bridged: Bridged, metric: Metric) -> None:
    (name,) = series_names(metric)
    found = bridged.database.query(name)
    assert {labels["job"] for labels, _ in found} == {"llama-server", "vllm"}
    for labels, _ in found:
        assert set(labels) - {"__name__"} - SCOPE_LABELS == series_labels(metric)


def test_labels_tell_engine_model_process_and_host(bridged: Bridged) -> None:
    found = {labels["instance"]: labels for labels, _ in bridged.database.query(series(ROUNDS))}
    assert {labels["node"] for labels in found.values()} == {"here"}
    expected = {
        "llama-server-k4": ("llama-server", "llama_cpp", QWEN),
        "llama-server-k20": ("llama-server", "llama_cpp", "_OTHER"),
        "llama-server-autoregressive": ("llama-server", "llama_cpp", "_OTHER"),
        "vllm": ("vllm", "vllm", QWEN),
        "vllm.openmetrics": ("vllm", "vllm", QWEN),
    }
    for engine, told in expected.items():
        labels = found[bridged.pages[engine].address]
        assert (labels["job"], labels["gen_ai_provider_name"], labels["gen_ai_request_model"]) == told
    assert len(found) == len(expected)


def test_nothing_else_of_the_pages_arrives(bridged: Bridged) -> None:
    found = {labels["__name__"] for labels, _ in bridged.database.query('{job=~"llama-server|vllm"}')}
    assert found == {series(metric) for metric in BRIDGED} | OF_THE_SCRAPE | {"target_info"}
    assert not {name for name in bridged.database.names() if name.startswith(("llamacpp", "vllm"))}


def test_no_count_of_this_library_is_made_of_them(bridged: Bridged) -> None:
    ours = {name for metric in registry_metrics() if metric.emitted_by == "library" for name in series_names(metric)}
    assert not bridged.database.names() & ours


def test_a_target_that_is_not_there_is_down_and_hinders_nobody(bridged: Bridged) -> None:
    up = {labels["instance"]: value for labels, value in bridged.database.query('up{job=~"llama-server|vllm"}')}
    assert up.pop(bridged.absent) == 0
    assert set(up.values()) == {1}


def test_a_llama_server_is_asked_with_its_key_and_for_the_model_that_is_named(bridged: Bridged) -> None:
    asked = {name: each.asked[-1] for name, each in bridged.pages.items()}
    assert asked["llama-server-k4"].path == "/metrics?model=Qwen%2FQwen3-8B"
    assert asked["llama-server-k20"].path == asked["vllm"].path == "/metrics"
    assert asked["llama-server-k4"].key == "Bearer sesame"
    assert asked["vllm"].key == ""


def test_a_key_is_sent_as_its_file_has_it_and_a_new_one_without_a_restart(tmp_path: Path) -> None:
    keys = ("0123456", "1e5", "a: b")
    file = tmp_path / "key"
    file.write_text(keys[0])
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(WORKED) as engine,
        agent(tmp_path, database, llama=(engine.address,), OTELCOL_LLAMA_KEY_FILE=str(file)),
    ):
        for key in keys:
            file.write_text(key)
            assert eventually(lambda key=key: engine.asked and engine.asked[-1].key == f"Bearer {key}")


@pytest.mark.parametrize("model", ["1.10", "007", "1e5", "a: b"])
def test_a_model_is_called_as_the_variable_has_it_if_it_looks_like_a_number_too(model: str, tmp_path: Path) -> None:
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(WORKED) as engine,
        agent(tmp_path, database, llama=(engine.address,), OTELCOL_LLAMA_MODEL=model),
    ):
        ((labels, _),) = eventually(lambda: database.query(series(OUTPUT)))
        assert labels["gen_ai_request_model"] == model


def test_models_behind_one_address_have_a_series_each_however_often_they_are_listed(tmp_path: Path) -> None:
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(WORKED) as router,
        agent(tmp_path, database, llama=tuple(f"{model}@{router.address}" for model in "abb")) as process,
    ):
        for name in (series(ROUNDS), "up{job='llama-server'}"):
            assert eventually(lambda name=name: database.total(f"count by (gen_ai_request_model) ({name})") == 2)
        assert {each.path for each in router.asked} == {"/metrics?model=a", "/metrics?model=b"}
        assert not {line for line in process.said().splitlines() if "\terror\t" in line}


# Pages that are not what they should be

BY_POSITION_SOURCE = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"


def test_what_is_no_count_and_no_place_has_no_value(tmp_path: Path) -> None:
    numbers = {"0": "5", "1": "NaN", "2": "+Inf", "3": "-4"}
    places = dict.fromkeys(["-1", "1.5", "x", "", "007", "9" * 30], "7")
    text = "".join(
        f'{BY_POSITION_SOURCE}{{position="{place}"}} {value}\n' for place, value in {**numbers, **places}.items()
    )
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(f"# TYPE {BY_POSITION_SOURCE} counter\n{text}{BY_POSITION_SOURCE} 7\n{WORKED}") as engine,
        agent(tmp_path, database, llama=(engine.address,)) as process,
    ):
        assert eventually(lambda: database.total(series(OUTPUT)) == 27)
        assert [
            (labels["specdecode_draft_position"], value) for labels, value in database.query(series(BY_POSITION))
        ] == [("0", 5)]
        assert not {line for line in process.said().splitlines() if "\terror\t" in line}


def test_a_page_that_is_far_too_large_is_not_read_and_the_log_says_why(tmp_path: Path) -> None:
    name = "llamacpp:tokens_predicted_total"
    samples = "".join(f'{name}{{slot="{number}"}} 1\n' for number in range(20_001))
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(f"# TYPE {name} counter\n{samples}") as many,
        served(f"# {'x' * 8_400_000}\n{WORKED}") as large,
        agent(tmp_path, database, llama=(many.address,), vllm=(large.address,)) as process,
    ):
        down = 'count(up{job=~"llama-server|vllm"} == 0)'
        assert eventually(lambda: database.total(down) == 2)
        assert database.total(series(OUTPUT)) is None
        assert '"error": "sample limit exceeded"' in process.said()
        assert '"error": "body size limit exceeded"' in process.said()


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ("127.0.0.1:8000", "unmarshal errors"),
        ("[[::1]:8000]", "unmarshal errors"),
        ("[http://127.0.0.1:8000]", "is not a valid hostname"),
        ("[127.0.0.1:8000/metrics]", "is not a valid hostname"),
        ('["[::1]:8000"]', ""),
    ],
)
def test_a_list_of_targets_that_is_not_well_written_is_refused(targets: str, told: str, tmp_path: Path) -> None:
    files = [part for name in ("agent.yaml", "bridge.yaml") for part in ("--config", str(CONFIGURATIONS / name))]
    done = subprocess.run(
        [collector_program(), "validate", *files],
        env={**plain(), "OTELCOL_STORAGE": str(tmp_path), "OTELCOL_VLLM": targets},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) == (not told)
    assert told in done.stderr


# Restarts


def test_a_restarted_server_counts_on(tmp_path: Path) -> None:
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(WORKED) as engine,
        agent(tmp_path, database, llama=(engine.address,)),
    ):
        rounds = series(ROUNDS)
        assert eventually(lambda: database.total(rounds) == 8)
        engine.status = 503
        assert eventually(lambda: database.total("up{job='llama-server'}") == 0)
        assert eventually(lambda: database.total(rounds) is None), "a server that is gone leaves no number behind"

        engine.text, engine.status = WORKED.replace("drafts_total 8", "drafts_total 3"), 200
        assert eventually(lambda: database.total(rounds) == 3)
        engine.text = WORKED.replace("drafts_total 8", "drafts_total 5")
        assert eventually(lambda: database.total(rounds) == 5)
        assert database.total(f"resets({rounds}[2m])") == 1


def test_places_that_a_restarted_server_no_longer_has_end_and_the_others_go_on(tmp_path: Path) -> None:
    def places(upto: int) -> str:
        name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
        lines = [f'{name}{{position="{place}"}} {100 - place}' for place in range(upto)]
        return "\n".join([f"# TYPE {name} counter", *lines, ""])

    with (
        prometheus(tmp_path / "prometheus") as database,
        served(places(19)) as engine,
        agent(tmp_path, database, llama=(engine.address,)),
    ):
        deepest = f'{series(BY_POSITION)}{{specdecode_draft_position="16+"}}'
        assert eventually(lambda: database.total(deepest) == 84 + 83 + 82)
        engine.text = places(17)
        assert eventually(lambda: database.total(deepest) == 84)
        engine.text = places(2)
        assert eventually(lambda: database.total(f"count({series(BY_POSITION)})") == 2)
        assert database.total(deepest) is None


# The two ratios


def test_the_ratio_of_the_worked_example_is_the_engines_own(tmp_path: Path) -> None:
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(WORKED) as engine,
        agent(tmp_path, database, llama=(engine.address,)),
    ):
        assert eventually(lambda: database.total(series(OUTPUT)) == 27)
        assert database.total(f"{series(ACCEPTED)} / {series(PROPOSED)}") == 18 / 32
        assert database.total(f"1 + {series(ACCEPTED)} / {series(ROUNDS)}") == 3.25


# Configurations


def test_without_a_target_services_are_counted_as_ever(tmp_path: Path) -> None:
    with (
        prometheus(tmp_path / "prometheus") as database,
        agent(tmp_path, database, OTELCOL_LLAMA_SERVERS="", OTELCOL_VLLM="") as process,
        service(process.grpc) as ours,
    ):
        ours.generate(Script(rounds=accepted_rounds(WORKED_EXAMPLE, 4)))
        ours.export()
        accepted = f'{series(Metrics.SPECDECODE_DRAFT_TOKENS)}{{specdecode_draft_outcome="accepted"}}'
        assert eventually(lambda: database.total(accepted) == 18)
        assert not {name for name in database.names() if "bridge" in name}
        assert not {line for line in process.said().splitlines() if "\terror\t" in line}


@pytest.mark.parametrize("order", [("to-gateway.yaml", "bridge.yaml"), ("bridge.yaml", "to-gateway.yaml")])
def test_an_agent_of_a_fleet_sends_them_to_its_gateway(tmp_path: Path, order: tuple[str, str]) -> None:
    with (
        prometheus(tmp_path / "prometheus") as database,
        served(WORKED) as engine,
        collector(tmp_path / "gateway", "gateway.yaml", OTELCOL_REMOTE_WRITE_URL=database.write_url) as gateway,
        agent(
            tmp_path / "agent",
            database,
            *("agent.yaml", *order),
            llama=(f"tiny@{engine.address}",),
            OTELCOL_REMOTE_WRITE_URL="http://127.0.0.1:9",
            OTELCOL_GATEWAYS=f"[{gateway.grpc.removeprefix('http://')}]",
            OTELCOL_GATEWAY_INSECURE="true",
        ),
    ):
        assert eventually(lambda: database.total(series(ACCEPTED)) == 18)
        ((labels, _),) = database.query(series(ACCEPTED))
        assert set(labels) - {"__name__"} - SCOPE_LABELS == series_labels(ACCEPTED)
        assert (labels["job"], labels["instance"], labels["node"]) == ("llama-server", engine.address, "here")


def test_the_bridge_takes_no_part_of_the_agents_pipeline_away() -> None:
    agents, own = (
        yaml.safe_load((CONFIGURATIONS / name).read_text())["service"]["pipelines"]["metrics"]
        for name in ("agent.yaml", "bridge.yaml")
    )
    for part in ("receivers", "processors"):
        added: set[Any] = {"prometheus/bridge", "transform/bridge"}
        assert [each for each in own[part] if each not in added] == agents[part]


# The real server


@pytest.mark.skipif(
    program() is None,
    reason=f"without a llama-server program: scripts/build_llama_server.py builds one, {VARIABLE} names it",
)
def test_a_real_llama_servers_counts_are_those_of_its_answers(tmp_path: Path) -> None:
    gguf = pytest.importorskip("otel_specdecode.tiny_pair.gguf", reason="needs the [demo] extra")
    target, draft = (gguf.convert(model_path(name), tmp_path / f"{name}.gguf", "f32") for name in ("target", "draft"))
    with (
        prometheus(tmp_path / "prometheus") as database,
        running(target, draft, 4, n_ctx=512, log=tmp_path / "llama-server.log") as server,
        agent(tmp_path, database, llama=(f"tiny@127.0.0.1:{server.port}",)),
    ):
        answers = [server.complete([1, 5 + seed, 9, 40], 40) for seed in range(3)]
        steps = [step for answer in answers for step in answer.steps if step.proposed]
        expected = {
            OUTPUT: sum(len(answer.tokens) for answer in answers),
            ROUNDS: len(steps),
            PROPOSED: sum(step.proposed for step in steps),
            ACCEPTED: sum(step.accepted for step in steps),
        }
        assert expected[ACCEPTED] > 0
        assert eventually(lambda: database.total(series(OUTPUT)) == expected[OUTPUT])
        assert {metric: database.total(series(metric)) for metric in expected} == expected
        places = database.query(series(BY_POSITION))
        assert {labels[label_name("specdecode.draft.position")]: value for labels, value in places} == {
            str(place): sum(step.accepted > place for step in steps) for place in range(4)
        }
