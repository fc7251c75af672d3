from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.engines import engine_named
from otel_specdecode.acceptance.engines.interface import Models
from otel_specdecode.acceptance.measuring import Job, Measurer, Witness, witnessed
from otel_specdecode.acceptance.prompts import Check, Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.sweep import job_id
from otel_specdecode.telemetry.names import Attr

PROMPT = Prompt("story", messages=({"role": "user", "content": "Tell me a story about a fox."},), max_tokens=40)
MODELS = Models("tiny", {"": "tiny:draft-kd"}, threads=2)

ENGINES = [
    pytest.param("mlx", marks=pytest.mark.mlx),
    pytest.param("llama_cpp", marks=pytest.mark.llama_cpp),
]


@pytest.fixture(params=ENGINES, scope="module")
def measurer(request: pytest.FixtureRequest) -> Iterator[tuple[Measurer, Witness]]:
    pytest.importorskip({"mlx": "mlx_lm"}.get(request.param, request.param), reason="needs the engine's extra")
    with witnessed("test-run") as witness:
        session = engine_named(request.param).load(MODELS)
        yield Measurer(session, witness), witness
        session.close()


def job(arm: Arm, prompt: Prompt = PROMPT, number: int = 0) -> Job:
    return Job(job_id(arm.name, prompt.id, str(number)), arm, prompt, number, "measured")


@pytest.mark.parametrize("k", [0, 2, 4])
def test_what_is_measured_is_what_the_span_says(measurer: tuple[Measurer, Witness], k: int) -> None:
    spans: list[dict[str, object]] = []
    measuring, witness = measurer
    take = witness.take
    witness.take = lambda name, **more: (seen := take(name, **more), spans.append(seen.attributes))[0]  # type: ignore[method-assign]
    try:
        found = measuring.run(job(Arm(k)))
    finally:
        del witness.take
    (span,) = spans

    assert found.error is None
    assert span[Attr.SPECDECODE_COHORT] == "bench"
    assert span[Attr.SPECDECODE_SESSION_ID] == found.id
    assert span[Attr.SPECDECODE_RUN_ID] == "test-run"
    assert span[Attr.SPECDECODE_MODE] == ("speculative" if k else "autoregressive")
    assert span[Attr.SPECDECODE_DRAFT_MAX_TOKENS] == k
    for name, value in (
        (Attr.GEN_AI_USAGE_OUTPUT_TOKENS, found.output_tokens),
        (Attr.GEN_AI_USAGE_INPUT_TOKENS, found.input_tokens),
        (Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS, found.accepted),
        (Attr.SPECDECODE_DRAFT_REJECTED_TOKENS, found.rejected),
        (Attr.SPECDECODE_VERIFY_PASSES, found.rounds),
        (Attr.SPECDECODE_ROLLBACKS, found.rollbacks),
        (Attr.SPECDECODE_DECODE_PASSES, found.decode_passes),
        (Attr.SPECDECODE_TIME_TO_FIRST_TOKEN, found.time_to_first_token),
        (Attr.SPECDECODE_DECODE_DURATION, found.decode),
        (Attr.SPECDECODE_PROCESS_PEAK_RSS, found.peak_rss),
        (Attr.SPECDECODE_MANIFEST_ID, found.manifest_id),
    ):
        assert span[name] == value, name
    assert 1 / span[Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND] == pytest.approx(found.time_per_token)


@pytest.mark.parametrize("k", [0, 3])
def test_its_passes_hold_all_tokens_but_the_prompts_own_and_all_of_the_decode_time(
    measurer: tuple[Measurer, Witness], k: int
) -> None:
    found = measurer[0].run(job(Arm(k)))

    missing = found.output_tokens - sum(found.passes.tokens)
    assert found.decode is not None
    assert found.time_to_first_token is not None
    assert len(found.passes.tokens) == len(found.passes.microseconds)
    assert max(found.passes.tokens) <= k + 1
    if found.prefill is None:  # older releases of MLX-LM do not tell the first round from prefill
        assert 1 <= missing <= k + 1
        expected = found.decode
    else:
        assert missing in (0, 1)
        expected = found.decode - (found.time_to_first_token - found.prefill if missing else 0.0)
        assert not k or found.accepted + found.finished_rounds == sum(found.passes.tokens)
    assert sum(found.passes.microseconds) == pytest.approx(expected * 1e6, rel=1e-3, abs=200)


def test_a_clock_that_is_not_instrumented_agrees(measurer: tuple[Measurer, Witness]) -> None:
    measurer[0].run(job(Arm(4)))
    for k in (0, 4):
        requests = [measurer[0].run(job(Arm(k), number=number)) for number in range(5)]
        for found in requests:
            assert found.client_first is not None
            assert found.client_decode is not None
        total = sum(found.client_first + found.client_decode for found in requests)  # type: ignore[operator]
        assert sum(found.duration for found in requests) == pytest.approx(total, rel=0.1)


def test_answers_are_kept_as_digests_and_greedy_ones_are_equal(measurer: tuple[Measurer, Witness]) -> None:
    one, again = (measurer[0].run(job(Arm(0), number=number)) for number in range(2))
    drafted = measurer[0].run(job(Arm(4)))

    assert one.text_digest == again.text_digest == drafted.text_digest
    assert one.opening_digest == drafted.opening_digest
    assert "fox" not in repr(one)


def test_an_answer_is_held_against_its_check(measurer: tuple[Measurer, Witness]) -> None:
    yes = measurer[0].run(job(Arm(0), replace(PROMPT, check=Check(regex="fox"))))
    no = measurer[0].run(job(Arm(0), replace(PROMPT, check=Check(exact="fox"))))
    nobody = measurer[0].run(job(Arm(0)))

    assert (yes.check, no.check, nobody.check) == (True, False, None)


def test_a_request_that_the_engine_fails_is_a_result_with_its_error(
    measurer: tuple[Measurer, Witness], monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring = measurer[0]
    stream = measuring._session.stream

    def breaks(*args: object) -> Iterator[str]:
        inner = stream(*args)  # type: ignore[arg-type]
        yield next(inner)
        inner.throw(MemoryError("no more"))

    monkeypatch.setattr(measuring._session, "stream", breaks)
    found = measuring.run(job(Arm(0)))

    assert found.error == "MemoryError"
    assert found.text_digest is None
    assert found.output_tokens == 1
