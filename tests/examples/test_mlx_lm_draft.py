"""MLX with a changed import."""

from __future__ import annotations

import pytest

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from tests.examples.running import each, finish_reasons, generations, run

pytestmark = pytest.mark.mlx

ONE_SIDED = {"specdecode.draft.model", "specdecode.accept_rate"}
NOT_KNOWN_ON_OLD_RELEASES = {"specdecode.prefill.duration"}


def test_both_ways_give_the_same_answer_in_spans_with_the_same_fields() -> None:
    printed, received = run("mlx_lm_draft.py")
    without, with_draft = printed.splitlines()
    assert without == with_draft != ""
    assert each(received, "specdecode.mode") == ["autoregressive", "speculative"]
    assert each(received, "specdecode.method") == ["none", "draft_model"]
    assert finish_reasons(received) == ["stop", "stop"]
    plain, speculative = (set(span.attributes) for span in generations(received))
    assert speculative - plain == ONE_SIDED
    assert plain - speculative <= NOT_KNOWN_ON_OLD_RELEASES
