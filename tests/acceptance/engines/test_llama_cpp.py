"""Acceptance on the real llama-cpp-python, with the tiny pair."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.acceptance.engines.interface import Models
from otel_specdecode.acceptance.engines.llama_cpp import ENGINE
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.identity.declared import Declared
from otel_specdecode.identity.manifest import is_told, manifest_of
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

from otel_specdecode import tiny_pair  # noqa: E402
from otel_specdecode.tiny_pair import cycle, model_path  # noqa: E402
from otel_specdecode.tiny_pair.folders import CHAT_TEMPLATE  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402
from tests.acceptance.engines.prompts import OPENING, STORY, answer, answers_of_threads, longer  # noqa: E402

pytestmark = pytest.mark.llama_cpp

DRAFTS = {"kd": "tiny:draft-kd", "weak": "tiny:draft-weak", "lookup": "prompt-lookup"}
QUIET = {"n_threads": 1}


def load(target: str = "tiny", drafts: dict[str, str] | None = None, **more: Any) -> Any:
    options = {**QUIET, **more.pop("options", {})}
    return ENGINE.load(Models(target, {} if drafts is None else drafts, options, **more))


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """The tiny pair, loaded under instrumentation, for up to three threads."""
    with capture():
        loaded = load(drafts=DRAFTS, threads=3)
    yield loaded
    loaded.close()


@pytest.fixture
def telemetry(session: Any) -> Iterator[Telemetry]:
    with capture() as captured:
        yield captured


def test_the_target_runs_alone_before_its_drafts_are_loaded() -> None:
    seen: list[object] = []

    def watch(session: Any) -> None:
        seen.append(answer(session, Arm(0), OPENING))
        with pytest.raises(AcceptanceError, match="no draft 'kd' was given"):
            answer(session, Arm(2, "kd"), OPENING)

    models = Models("tiny", {"kd": "tiny:draft-kd"}, QUIET)
    with closing(ENGINE.load(models, watch)) as session:
        assert seen == [answer(session, Arm(0), OPENING)] == [answer(session, Arm(2, "kd"), OPENING)]


@pytest.mark.parametrize("prompt", [STORY, OPENING], ids=lambda each: each.id)
def test_every_greedy_arm_says_the_same(session: Any, prompt: Prompt) -> None:
    arms = [Arm(2, "kd"), Arm(4, "kd"), Arm(4, "weak"), Arm(3, "lookup")]
    alone = answer(session, Arm(0), prompt)
    assert len(alone) > 20
    assert [answer(session, arm, prompt) for arm in arms] == [alone] * 4


@pytest.mark.parametrize(
    ("arm", "mode", "method", "draft"),
    [
        (Arm(0), "autoregressive", "none", None),
        (Arm(3, "kd"), "speculative", "draft_model", "draft-kd"),
        (Arm(5, "weak"), "speculative", "draft_model", "draft-weak"),
        (Arm(2, "lookup"), "speculative", "prompt_lookup", None),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_telemetry_tells_the_arm(
    session: Any, telemetry: Telemetry, arm: Arm, mode: str, method: str, draft: str | None
) -> None:
    answer(session, arm, STORY)
    seen = telemetry.span().attributes
    assert seen is not None
    assert (seen[Attr.SPECDECODE_MODE], seen[Attr.SPECDECODE_METHOD]) == (mode, method)
    assert seen[Attr.SPECDECODE_DRAFT_MAX_TOKENS] == arm.draft_length
    assert seen.get(Attr.SPECDECODE_DRAFT_MODEL) == draft
    assert seen[Attr.GEN_AI_USAGE_INPUT_TOKENS] == session.count(STORY)
    assert Attr.SPECDECODE_HAZARD_IDS not in seen


@pytest.mark.parametrize("arm", [Arm(0), Arm(3, "kd"), Arm(3, "lookup")], ids=lambda each: each.name)
def test_the_manifest_known_before_the_first_request_is_that_of_its_span(
    session: Any, telemetry: Telemetry, arm: Arm
) -> None:
    pair = session.pair(arm)
    assert is_told(pair)
    for _ in range(2):  # files are read on a thread of their own from the first request on
        answer(session, arm, longer(OPENING, 4))
    told = manifest_of(pair, Declared()).id
    assert {(span.attributes or {}).get(Attr.SPECDECODE_MANIFEST_ID) for span in telemetry.spans()} <= {told, None}
    assert told in {(span.attributes or {}).get(Attr.SPECDECODE_MANIFEST_ID) for span in telemetry.spans()}


def test_nothing_is_kept_from_the_request_before(session: Any, telemetry: Telemetry) -> None:
    for _ in range(2):
        answer(session, Arm(2, "kd"), STORY)
    counts = [
        {name: value for name, value in (span.attributes or {}).items() if name.endswith(("tokens", "passes"))}
        for span in telemetry.spans()
    ]
    assert counts[0] == counts[1]
    assert Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS not in counts[1]


def test_without_a_draft_a_llama_keeps_no_more_logits_than_it_would(session: Any) -> None:
    settings = [dict(session.pair(arm).target.identity().settings)["logits_all"] for arm in (Arm(0), Arm(2, "kd"))]
    assert settings == [False, True]


def test_messages_go_through_the_chat_template_and_text_goes_as_it_is(session: Any) -> None:
    llama = session._seats[0].alone
    assert STORY.messages is not None
    chat = f"<|im_start|>user\n{STORY.messages[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    assert llama.metadata["tokenizer.chat_template"] == CHAT_TEMPLATE
    assert session._tokens.of(STORY) == llama.tokenize(chat.encode(), add_bos=False, special=True)
    assert session._tokens.of(OPENING) == llama.tokenize((OPENING.text or "").encode(), add_bos=False, special=True)


def test_sampling_is_the_arms_and_a_seed_repeats_it_with_and_without_a_draft(
    session: Any, telemetry: Telemetry
) -> None:
    arm = Arm(2, "kd", temperature=0.9, top_k=20)
    texts = [
        answer(session, each, STORY, seed=seed) for each, seed in ((arm, 1), (arm, 2), (arm, 1), (arm.baseline, 1))
    ]
    assert texts[0] == texts[2] == texts[3]
    assert texts[0] != texts[1]
    seen = telemetry.spans()[0].attributes
    assert seen is not None
    assert seen[Attr.GEN_AI_REQUEST_TEMPERATURE] == 0.9
    assert seen[Attr.GEN_AI_REQUEST_TOP_K] == 20
    assert seen[Attr.GEN_AI_REQUEST_TOP_P] == 1.0


def test_threads_get_what_they_get_alone_and_wait_for_nobody(session: Any) -> None:
    arms = [Arm(0), Arm(4, "kd"), Arm(2, "lookup", temperature=0.8)]
    alone = [[answer(session, arm, STORY, seed=number) for arm in arms] for number in range(3)]
    assert answers_of_threads(session, 3, arms) == alone
    assert session.queued(0) is None


def test_a_stop_text_ends_an_answer_and_is_no_part_of_it(session: Any) -> None:
    whole = answer(session, Arm(0), STORY)
    assert " named Nora" in whole
    with closing(load(drafts={"": "tiny:draft-kd"}, stop=("castle", " named Nora"))) as stopping:
        texts = [answer(stopping, arm, STORY) for arm in (Arm(0), Arm(4), Arm(0))]
    assert texts == [whole.partition(" named Nora")[0]] * 3


def test_a_prompt_that_does_not_fit_is_told_with_its_numbers() -> None:
    with closing(load(options={"n_ctx": 300})) as small:
        assert small.count(longer(STORY, 200)) < 100
        with pytest.raises(
            AcceptanceError, match=r"^prompt 'story of 300' does not fit: \d+ .* context of tiny has 300"
        ):
            small.count(longer(STORY, 300))


def test_arms_that_cannot_be_run_are_told_before_they_are() -> None:
    with closing(load(drafts={"kd": "tiny:draft-kd"}, options={"n_batch": 64})) as batched:
        assert len(answer(batched, Arm(63, "kd"), longer(OPENING, 4))) > 0
        with pytest.raises(AcceptanceError, match=r"more than the 63 tokens .* n_batch=65 or more"):
            batched.pair(Arm(64, "kd"))
        with pytest.raises(AcceptanceError, match=r"more than the 63 tokens"):
            answer(batched, Arm(64, "kd"), OPENING)
        with pytest.raises(AcceptanceError, match=r"no draft 'q4' was given, as k=2 q4 asks for"):
            batched.pair(Arm(2, "q4"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"target": "tiny:big"}, r"no model 'tiny:big' ships"),
        ({"target": "some/place/no.gguf"}, r"there is no file no.gguf\. Nothing is downloaded"),
        ({"drafts": {"": "no.gguf"}}, r"there is no file no.gguf"),
        ({"options": {"kv_bits": 8}}, r"llama.cpp has no option kv_bits here; it takes n_ctx, "),
        ({"options": {"n_ctx": 0}}, r"n_ctx must be a whole number from 1 on"),
        ({"options": {"n_ctx": 1000}, "drafts": {"": "tiny:draft"}}, r"multiple of 256 where there is a draft: 1024"),
        ({"options": {"n_ctx": 1000}, "drafts": {"": "prompt-lookup"}}, r"multiple of 256"),
        ({"stop": ("",)}, r"a stop text is empty"),
    ],
)
def test_what_cannot_be_loaded_is_told(more: dict[str, Any], told: str) -> None:
    with pytest.raises(AcceptanceError, match=told):
        load(**more)


def test_a_folder_is_told_to_be_mlxs() -> None:
    with pytest.raises(AcceptanceError, match=r"^target is a folder, and llama.cpp loads GGUF files"):
        load(str(model_path("target")))


def test_what_is_no_gguf_file_is_told_without_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "notes.gguf"
    file.write_text("no model at all")
    with pytest.raises(AcceptanceError, match=r"^llama.cpp cannot load notes.gguf: ") as raised:
        load(str(file))
    assert str(tmp_path) not in str(raised.value)


def test_a_draft_of_other_tokens_is_told(tmp_path: Path) -> None:
    draft = convert(cycle.build(tmp_path).draft, tmp_path / "other.gguf")
    with pytest.raises(AcceptanceError, match=r"^other.gguf cannot draft for target.gguf: their vocabularies differ"):
        load(drafts={"": str(draft)})


def test_messages_without_a_chat_template_are_told(tmp_path: Path) -> None:
    file = convert(model_path("target"), tmp_path / "plain.gguf")
    content = file.read_bytes()
    file.write_bytes(content.replace(b"tokenizer.chat_template", b"tokenizer.chat_anything"))
    with closing(load(str(file))) as plain:
        assert plain.count(OPENING) > 0
        with pytest.raises(AcceptanceError, match=r"^plain.gguf has no chat template, so prompt 'story' cannot"):
            plain.count(STORY)


def test_what_was_converted_is_gone_after_close_and_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with closing(load(drafts={"": "tiny:draft"})):
        assert len(list(tmp_path.rglob("*.gguf"))) == 2
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AcceptanceError):
        load(drafts={"": "no.gguf"})
    assert list(tmp_path.iterdir()) == []


def test_without_llama_cpp_python_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(
        AcceptanceError, match=r'^llama.cpp is not installed: pip install "otel-specdecode\[acceptance,ll'
    ):
        load()


def test_without_what_converts_the_tiny_pair_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "otel_specdecode.tiny_pair.gguf")
    monkeypatch.delattr(tiny_pair, "gguf")
    with pytest.raises(AcceptanceError, match=r"what writes them is missing: pip install gguf safetensors$"):
        load()
