"""A guard in the process of MLX-LM's server: tenants by baggage, and drafts that win each request and lose for all."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")
pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from otel_specdecode.guard import service
from otel_specdecode.guard.baseline_file import read_baseline
from otel_specdecode.guard.policy import Baseline, Budget, Policy, Trigger, Windows
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from tests.engines.mlx_lm.local_server import LocalServer, local_server
from tests.engines.mlx_lm.served import DRAFT
from tests.guard.joined import NO_CONTROL, guarded, transitions, violations

pytestmark = pytest.mark.mlx

CLIENTS = 12
"""So many that there are eight and more at any time: those that come between two answers of one client do not count."""
WITHOUT_END = {"logit_bias": {"0": -100, "2": -100}}
TEXT = "/v1/completions"


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """MLX-LM instrumented into memory."""
    with capture() as captured:
        yield captured


def test_tenants_of_a_server_have_budgets_of_their_own(telemetry: Telemetry) -> None:
    """By the baggage that a client sends."""
    policy = Policy(mode="enforce", baseline=NO_CONTROL, budget=Budget(draft_tokens_per_minute=1))
    asked = {"prompt": "Tell me a story", "max_tokens": 12}
    with local_server(*DRAFT) as server, guarded(policy):
        for tenant in ("acme", "acme", "beta"):
            assert server.ask(TEXT, asked, baggage=f"specdecode.tenant.id={tenant}").status == 200
            telemetry.spans()
    generations = [dict(span.attributes or {}) for span in telemetry.spans() if span.name.startswith("text_completion")]
    found = [(each[Attr.SPECDECODE_TENANT_ID], each.get(Attr.SPECDECODE_FALLBACK_REASON)) for each in generations]
    assert found == [("acme", None), ("acme", "tenant_budget"), ("beta", None)]
    assert violations(telemetry) == []


def load(server: LocalServer, requests: int) -> None:
    """Have all clients ask at once, one request after another."""

    def client(number: int) -> None:
        for turn in range(requests):
            length = 24 + 3 * number  # or all would end at once
            body = {
                "prompt": f"Story {turn} of client {number:02}.",
                "max_tokens": length,
                "temperature": 0.0,
                **WITHOUT_END,
            }
            assert server.ask(TEXT, body).status == 200

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(client, range(CLIENTS)))


@pytest.mark.slow
def test_a_draft_that_wins_each_request_and_loses_for_the_service_is_seen_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the server batches its clients; with it each request is faster, and all of them are slower."""
    monkeypatch.setattr(service, "ENOUGH_SECONDS", 0.5)
    monkeypatch.setattr(service, "WINDOW_SECONDS", 0.5)
    file = tmp_path / "baseline.json"
    with capture(), local_server() as server, guarded(Policy(baseline=Baseline(write=str(file), requests=3))):
        load(server, 3)
    assert any(usual.tokens_per_second for usual in read_baseline(file).values())
    policy = Policy(
        windows=Windows(rounds=1000, requests=8),
        triggers={"service_speedup": Trigger(below=1.0, action="autoregressive")},
        baseline=Baseline(source="file", file=str(file)),
    )
    with capture() as telemetry, local_server(*DRAFT) as server, guarded(policy):
        load(server, 2)
        told = transitions(telemetry)
        speculative = [
            dict(span.attributes or {}) for span in telemetry.spans() if span.name.startswith("text_completion")
        ]
        assert {each[Attr.SPECDECODE_MODE] for each in speculative} == {"speculative"}
        assert told[0]["trigger"] == "service_speedup"
        assert told[0]["value"] < 1
        assert told[0]["observe_only"] is True
        assert violations(telemetry) == []
