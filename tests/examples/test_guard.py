"""The guard on MLX: a draft that does not pay is switched off while the program runs."""

from __future__ import annotations

import pytest

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
pytest.importorskip("msgspec", reason="needs the [guard] extra")
pytest.importorskip("rich", reason="needs the [cli] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from otel_specdecode.tiny_pair import PROMPTS
from tests.examples.running import each, run

pytestmark = pytest.mark.mlx


def test_a_bad_draft_is_switched_off_and_the_log_says_why() -> None:
    printed, received = run("guard.py")
    lines = printed.splitlines()
    answers, log = lines[: len(PROMPTS)], lines[len(PROMPTS) :]
    assert " 0 of them from the draft" not in answers[0]
    assert " 0 of them from the draft" in answers[-1]

    modes, reasons = each(received, "specdecode.mode"), each(received, "specdecode.fallback.reason")
    off = modes.index("autoregressive")
    assert off > 0
    assert modes == ["speculative"] * off + ["autoregressive"] * (len(PROMPTS) - off)
    assert set(reasons[off:]) == {"accept_rate"}
    assert set(each(received, "specdecode.requested_mode")) == {"speculative"}
    assert set(each(received, "specdecode.cohort")) == {"normal", "fallback"}

    told = [" ".join(line.split()) for line in log]
    assert "closed -> limited as_asked -> k=3 accept_rate " in told[0]
    assert "limited -> open k=3 -> autoregressive accept_rate_critical " in told[-1]
    counted = received.latest("specdecode.guard.transitions")
    assert sum(value for _, value in counted) == len(log)
