"""A fleet: agents in front of gateways, which keep the traces that tell something and a share of the rest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from opentelemetry.trace import Status, StatusCode, Tracer

from otel_specdecode.telemetry.names import Attr, Event
from otel_specdecode.testing.fake import WORKED_EXAMPLE, Script, accepted_rounds
from tests.e2e.pipeline import Collector, Prometheus, collector, eventually, prometheus
from tests.e2e.services import service
from tests.otlp_receiver import Received, otlp_receiver

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HEALTHY = Script(rounds=accepted_rounds((4, 3, 4, 2) * 25, 4))
NO_GOOD = Script(rounds=accepted_rounds((1, 0) * 5, 4))
"""Too short to be kept for its accept rate."""

WORKED = Script(rounds=accepted_rounds(WORKED_EXAMPLE, 4))
ACCEPTED = sum(WORKED_EXAMPLE)
SHARE = 0x100000000 // 100 * 10
"""A trace whose id ends in less than this is in the default share of 10 %."""

LOW: dict[str, Any] = {"specdecode.accept_rate": 0.41, "specdecode.verify.passes": 20}
TELLING: dict[str, dict[str, Any]] = {
    "fallback": {"specdecode.fallback.reason": "feature_flag"},
    "low accept rate": LOW,
    "all rejected": {"specdecode.hazard.ids": ("draft_exceeds_batch", "all_rejected")},
    "in a burst": {"specdecode.in_burst": True},
}
ORDINARY: dict[str, dict[str, Any]] = {
    "nothing": {},
    "accept rate at the bound": {**LOW, "specdecode.accept_rate": 0.42},
    "low accept rate of few rounds": {**LOW, "specdecode.verify.passes": 19},
    "another hazard": {"specdecode.hazard.ids": ("context_not_padded",)},
    "not in a burst": {"specdecode.in_burst": False},
}


@dataclass(frozen=True)
class Fleet:
    """Two agents, two gateways, and what is behind them.

    Attributes:
        stored: What the trace stores got, one a gateway.
    """

    agents: tuple[Collector, Collector]
    gateways: tuple[Collector, Collector]
    database: Prometheus
    stored: tuple[Received, Received]

    def kept(self) -> set[str]:
        """Return the ids of all traces that were stored."""
        return {span.trace_id for received in self.stored for span in received.spans()}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    with (
        prometheus(folder / "prometheus") as database,
        otlp_receiver() as (left_store, left_stored),
        otlp_receiver() as (right_store, right_stored),
        gateway(folder / "left", database, left_store) as left,
        gateway(folder / "right", database, right_store) as right,
        agent(folder / "north", "north", left, right) as north,
        agent(folder / "south", "south", left, right) as south,
    ):
        yield Fleet((north, south), (left, right), database, (left_stored, right_stored))


def gateway(folder: Path, database: Prometheus, store: str) -> AbstractContextManager[Collector]:
    destinations = {
        "OTELCOL_REMOTE_WRITE_URL": database.write_url,
        "OTELCOL_TRACES_URL": store,
        "OTELCOL_LOGS_URL": store,
    }
    return collector(folder, "gateway.yaml", **destinations, OTELCOL_DECISION_WAIT="2s")


def agent(folder: Path, node: str, *gateways: Collector) -> AbstractContextManager[Collector]:
    listed = ", ".join(each.grpc.removeprefix("http://") for each in gateways)
    return collector(
        folder,
        "agent.yaml",
        "to-gateway.yaml",
        OTELCOL_GATEWAYS=f"[{listed}]",
        OTELCOL_GATEWAY_INSECURE="true",
        OTEL_RESOURCE_ATTRIBUTES=f"host.name={node}",
    )


def in_share(trace_id: str) -> bool:
    return int(trace_id[24:], 16) < SHARE


def test_the_sampler_keeps_every_trace_that_tells_something_and_a_share_of_the_rest(fleet: Fleet) -> None:
    with service(fleet.agents[0].grpc, "sampled") as process:
        tracer = process.tracer_provider.get_tracer("some")
        telling = {name: [_trace(tracer, each) for _ in range(50)] for name, each in TELLING.items()}
        telling["error"] = [_trace(tracer, {}, failed=True) for _ in range(50)]
        ordinary = {name: [_trace(tracer, each) for _ in range(200)] for name, each in ORDINARY.items()}
        process.export()
    wanted = {trace for traces in telling.values() for trace in traces}
    rest = {trace for traces in ordinary.values() for trace in traces}
    wanted |= {trace for trace in rest if in_share(trace)}
    assert eventually(lambda: wanted <= fleet.kept())
    last = _marker(fleet)
    assert eventually(lambda: last in fleet.kept())
    everything = {trace for traces in telling.values() for trace in traces} | rest
    assert fleet.kept() & everything == wanted
    assert 50 < len(wanted & rest) < 150


def test_all_spans_of_a_trace_are_judged_together_though_they_come_over_two_agents(fleet: Fleet) -> None:
    with service(fleet.agents[0].grpc, "front") as front, service(fleet.agents[1].grpc, "engine") as engine:
        traces = []
        for _ in range(40):
            with front.tracer_provider.get_tracer("some").start_as_current_span("request") as span:
                context = span.get_span_context()
                child = engine.tracer_provider.get_tracer("some").start_span("generation", attributes=dict(LOW))
                child.end()
            traces.append(f"{context.trace_id:032x}")
        front.export()
        engine.export()

    def halves(received: Received, trace: str) -> int:
        return sum(span.trace_id == trace for span in received.spans())

    assert eventually(lambda: all(sum(halves(each, trace) for each in fleet.stored) == 2 for trace in traces))
    shares = [sum(halves(each, trace) == 2 for trace in traces) for each in fleet.stored]
    assert sum(shares) == len(traces), "each whole trace went through one gateway"
    assert min(shares) > 0, "and both gateways have their part"


def test_metrics_of_each_process_arrive_with_its_node(fleet: Fleet) -> None:
    for through in fleet.agents:
        for instance in ("one", "two", "three"):
            with service(through.grpc, "fleet", instance) as process:
                for _ in range(3):
                    process.generate(WORKED)
                    process.export()
    accepted = 'sum by (node) (specdecode_draft_tokens_total{job="fleet",specdecode_draft_outcome="accepted"})'
    expected = [({"node": node}, 9.0 * ACCEPTED) for node in ("north", "south")]
    assert eventually(lambda: sorted(fleet.database.query(accepted), key=str) == expected)
    assert len(fleet.database.query('group by (instance, node) (specdecode_request_started_total{job="fleet"})')) == 6


def test_an_exemplar_that_names_a_trace_names_one_that_was_kept(fleet: Fleet) -> None:
    begin = time.time()
    with service(fleet.agents[0].grpc, "linked") as process:
        ids: set[str] = set()
        while sum(map(in_share, ids)) < 2:
            process.generate(WORKED)
            process.export()
            ids = {f"{span.context.trace_id:032x}" for span in process.spans() if span.context}

    def named() -> set[str]:
        found = fleet.database.exemplars('{job="linked"}', begin - 60, time.time() + 60)
        return {labels["trace_id"] for labels in found if "trace_id" in labels}

    assert eventually(named)
    assert named() <= {trace for trace in ids if in_share(trace)}
    assert eventually(lambda: named() <= fleet.kept())


def test_every_trace_that_a_burst_names_was_kept(fleet: Fleet) -> None:
    """Requests that ended before there were rounds enough to see the burst have no mark, and may not be named."""
    with service(fleet.agents[0].grpc, "bursting") as process:
        for script in [HEALTHY] * 20 + [NO_GOOD] * 60 + [HEALTHY] * 8:
            process.generate(script)
        process.export()

    def named() -> set[str]:
        events = [each for received in fleet.stored for each in received.events(Event.SPECDECODE_ROLLBACK_BURST)]
        return {trace for event in events for trace in event[Attr.SPECDECODE_BURST_TRACE_IDS]}

    assert eventually(named)
    assert len(named()) == 5
    assert not all(map(in_share, named())), "so the mark had to keep some"
    assert eventually(lambda: named() <= fleet.kept())


def test_what_an_agent_holds_for_a_gateway_that_is_down_arrives_when_it_is_back(fleet: Fleet, tmp_path: Path) -> None:
    with (
        otlp_receiver() as (store, stored),
        gateway(tmp_path / "gateway", fleet.database, store) as through,
        agent(tmp_path / "agent", "east", through) as before,
        service(before.grpc, "patient") as process,
    ):
        through.end()
        for _ in range(20):
            process.generate(Script(rounds=accepted_rounds([0] * 20, 4)))
        process.export()
        assert eventually(lambda: before.counter("otelcol_exporter_queue_size") > 0)
        through.start()
        traces = {f"{span.context.trace_id:032x}" for span in process.spans() if span.context}
        assert stored.wait_for(lambda received: traces <= {span.trace_id for span in received.spans()})
        assert eventually(lambda: fleet.database.total('specdecode_request_started_total{job="patient"}') == 20)


def _trace(tracer: Tracer, attributes: dict[str, object], failed: bool = False) -> str:
    """Make a trace of one span; return its id."""
    span = tracer.start_span("generation", attributes=attributes)  # type: ignore[arg-type]
    if failed:
        span.set_status(Status(StatusCode.ERROR))
    span.end()
    return f"{span.get_span_context().trace_id:032x}"


def _marker(fleet: Fleet) -> str:
    """Send a trace that is kept; once it is stored, all that were sent before are judged."""
    with service(fleet.agents[0].grpc, "marker") as process:
        trace = _trace(process.tracer_provider.get_tracer("some"), {"specdecode.in_burst": True})
        process.export()
    return trace
