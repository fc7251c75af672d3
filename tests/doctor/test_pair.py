"""Hazards that can be foreseen for a target and its draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.models import Model, ModelError, Place, find_model, read_model
from otel_specdecode.doctor.pair import Question, pair_checks
from otel_specdecode.identity.models import TokenizerIdentity
from otel_specdecode.telemetry.names import Enum
from otel_specdecode.tiny_pair import model_path

GIB = 1024**3
MLX = Model(
    Place("mlx", Path("t")),
    "target",
    "llama",
    "bfloat16",
    8 * GIB,
    TokenizerIdentity("BPE", None, 100, "a"),
    keeps_state=False,
)
GGUF = replace(MLX, place=Place("gguf", Path("t.gguf")))
TOKENS = [f"t{number}".encode() for number in range(100)]


def checked(
    target: Model,
    draft: Model | ModelError | None = None,
    limit: int | None = 64 * GIB,
    tokens: Mapping[str, Sequence[bytes]] | None = None,
    **settings: Any,
) -> dict[str, Check]:
    models = {"target": target, "draft": draft}

    def find(called: str) -> Model:
        found = models[called]
        if isinstance(found, ModelError):
            raise found
        assert found is not None
        return found

    question = Question("target", None if draft is None else "draft", **settings)
    texts = tokens or {}
    checks = pair_checks(question, find, lambda: limit, lambda model: texts.get(model.name, TOKENS))
    return {check.id: check for check in checks}


def hazards(*args: Any, **kwargs: Any) -> dict[str, str]:
    """Ids of the hazards that are foreseen, with their status."""
    checks = checked(*args, **kwargs)
    return {check.facts["hazard"]: check.status for check in checks.values() if "hazard" in check.facts}


def vocabulary(model: Model, size: int | None, digest: str | None = "a", kind: str = "BPE") -> Model:
    return replace(model, name="draft", tokenizer=TokenizerIdentity(kind, None, size, digest))


@pytest.mark.parametrize("target", [MLX, GGUF])
def test_a_pair_of_one_vocabulary_whose_caches_can_be_rewound_has_none(target: Model) -> None:
    checks = checked(target, target)
    assert checks["pair.hazards"].detail == "none foreseen"
    assert checks["pair.unforeseen"].status == "unknown"
    assert "all_rejected" in checks["pair.unforeseen"].detail
    assert {check.status for check in checks.values()} == {"ok", "unknown"}


@pytest.mark.parametrize(
    ("target", "draft", "settings", "expected"),
    [
        (replace(MLX, keeps_state=True), MLX, {}, {"recurrent_target": "error"}),
        (replace(GGUF, keeps_state=True), None, {}, {"recurrent_target": "error"}),
        (MLX, replace(MLX, keeps_state=True), {}, {"draft_not_trimmable": "warn"}),
        (GGUF, replace(GGUF, keeps_state=True), {}, {"draft_not_trimmable": "error"}),
        (replace(MLX, sliding_window=512), MLX, {}, {"sliding_window_exceeded": "warn"}),
        (MLX, replace(MLX, sliding_window=512), {}, {"draft_not_trimmable": "warn"}),
        (GGUF, replace(GGUF, sliding_window=512), {}, {}),
        (GGUF, GGUF, {"n_ctx": 4096}, {}),
        (GGUF, GGUF, {"n_ctx": 4000}, {"context_not_padded": "warn"}),
        (MLX, MLX, {"n_ctx": 4000}, {}),
        (GGUF, GGUF, {"draft_length": 511}, {}),
        (GGUF, GGUF, {"draft_length": 512}, {"draft_exceeds_batch": "error"}),
        (GGUF, GGUF, {"draft_length": 512, "n_batch": 1024}, {"draft_exceeds_batch": "error"}),
        (GGUF, GGUF, {"draft_length": 512, "n_batch": 1024, "n_ctx": 2048}, {}),
        (GGUF, None, {"draft_length": 10, "n_batch": 8}, {"draft_exceeds_batch": "error"}),
    ],
)
def test_each_hazard_is_foreseen_from_what_causes_it(
    target: Model, draft: Model | None, settings: dict[str, int], expected: dict[str, str]
) -> None:
    assert hazards(target, draft, **settings) == expected


@pytest.mark.parametrize(
    ("target", "draft", "mismatch"),
    [
        (MLX, vocabulary(MLX, 101), True),
        (MLX, vocabulary(MLX, 100, "b"), True),
        (MLX, vocabulary(MLX, 100, None), False),
        (MLX, vocabulary(MLX, None, None), False),
        (GGUF, vocabulary(GGUF, 100 + 128, "b"), False),
        (GGUF, vocabulary(GGUF, 100 + 129, "b"), True),
        (GGUF, vocabulary(GGUF, 100, "a", kind="llama"), True),
    ],
)
def test_a_draft_of_another_vocabulary_is_foreseen(target: Model, draft: Model, mismatch: bool) -> None:
    assert hazards(target, draft) == ({"vocab_mismatch": "error"} if mismatch else {})


@pytest.mark.parametrize(
    ("changed", "mismatch"), [({4: b"x"}, False), ({5: b"x"}, True), ({99: b"x"}, True), ({100: b"more"}, False)]
)
def test_texts_of_tokens_are_compared_as_llama_cpp_does(changed: dict[int, bytes], mismatch: bool) -> None:
    """From id 5 on, and where both have a token."""
    theirs = [changed.get(number, f"t{number}".encode()) for number in range(max(100, max(changed) + 1))]
    found = hazards(GGUF, vocabulary(GGUF, len(theirs), "b"), tokens={"draft": theirs})
    assert found == ({"vocab_mismatch": "error"} if mismatch else {})


def test_the_fix_of_a_context_is_the_number_to_give() -> None:
    check = checked(GGUF, GGUF, n_ctx=4000)["pair.hazard.context_not_padded"]
    assert check.fix == "n_ctx=4096"


def test_every_id_is_one_of_the_registry() -> None:
    known = set(Enum.SPECDECODE_HAZARD_ID)
    worst = replace(GGUF, keeps_state=True)
    found = hazards(worst, vocabulary(worst, 900, "b"), n_ctx=300, n_batch=8, draft_length=9)
    found |= hazards(replace(MLX, sliding_window=9), replace(MLX, sliding_window=9))
    assert len(found) == 6
    assert found.keys() <= known


def test_a_draft_for_the_other_engine_is_an_error() -> None:
    checks = checked(GGUF, MLX)
    assert checks["pair.format"].status == "error"
    assert "pair.hazards" not in checks


def test_a_model_that_cannot_be_read_is_an_error_with_the_fix() -> None:
    check = checked(MLX, ModelError("not here", "hf download a/b"))["pair.draft"]
    assert (check.status, check.detail, check.fix) == ("error", "not here", "hf download a/b")


@pytest.mark.parametrize(("limit", "status"), [(64 * GIB, "ok"), (20 * GIB, "warn"), (None, "unknown")])
def test_weights_that_leave_too_little_memory_are_warned_of(limit: int | None, status: str) -> None:
    check = checked(MLX, MLX, limit)["pair.memory"]
    assert check.status == status
    if limit == 20 * GIB:
        assert "16.00 GiB of 20.00 GiB, 80%" in check.detail


def test_caches_that_are_not_known_are_told_beside_the_model() -> None:
    check = checked(replace(MLX, keeps_state=None, why_unknown="mlx-lm cannot load it (ValueError)"))["pair.target"]
    assert check.status == "warn"
    assert "Its caches are not known: mlx-lm cannot load it (ValueError)" in check.detail


def test_the_shipped_pair_has_none_on_llama_cpp_and_needs_no_engine_to_tell(tmp_path: Path) -> None:
    gguf = pytest.importorskip("otel_specdecode.tiny_pair.gguf", reason="needs the [demo] extra")
    target = gguf.convert(model_path("target"), tmp_path / "target.gguf")
    draft = gguf.convert(model_path("draft"), tmp_path / "draft.gguf")
    checks = {check.id: check for check in pair_checks(Question(str(target), str(draft), n_ctx=1024))}
    assert checks["pair.hazards"].detail == "none foreseen"
    assert read_model(find_model(str(target))).keeps_state is False
    assert str(tmp_path) not in str(checks)
