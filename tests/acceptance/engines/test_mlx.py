"""Acceptance on the real MLX-LM, with the tiny pair."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.acceptance.engines.interface import Models
from otel_specdecode.acceptance.engines.mlx import ENGINE
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.identity.declared import Declared
from otel_specdecode.identity.manifest import is_told, manifest_of
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture

mlx_lm = pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

import mlx.core as mx  # noqa: E402

from otel_specdecode.tiny_pair import chat_tokens, cycle, model_path  # noqa: E402
from tests.acceptance.engines.prompts import OPENING, STORY, answer, answers_of_threads, at_once, longer  # noqa: E402

pytestmark = pytest.mark.mlx

DRAFTS = {"kd": "tiny:draft-kd", "weak": "tiny:draft-weak"}


def load(target: str = "tiny", drafts: dict[str, str] | None = None, **more: Any) -> Any:
    return ENGINE.load(Models(target, {} if drafts is None else drafts, **more))


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


@pytest.mark.parametrize("prompt", [STORY, OPENING], ids=lambda each: each.id)
def test_every_greedy_arm_says_the_same(session: Any, prompt: Prompt) -> None:
    arms = [Arm(2, "kd"), Arm(4, "kd"), Arm(4, "weak")]
    alone = answer(session, Arm(0), prompt)
    assert len(alone) > 20
    assert [answer(session, arm, prompt) for arm in arms] == [alone] * 3


@pytest.mark.parametrize(
    ("arm", "mode", "draft"),
    [
        (Arm(0), "autoregressive", None),
        (Arm(3, "kd"), "speculative", "draft-kd"),
        (Arm(5, "weak"), "speculative", "draft-weak"),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_telemetry_tells_the_arm(session: Any, telemetry: Telemetry, arm: Arm, mode: str, draft: str | None) -> None:
    answer(session, arm, STORY)
    seen = telemetry.span().attributes
    assert seen is not None
    assert seen[Attr.SPECDECODE_MODE] == mode
    assert seen[Attr.SPECDECODE_DRAFT_MAX_TOKENS] == arm.draft_length
    assert seen.get(Attr.SPECDECODE_DRAFT_MODEL) == draft
    assert seen[Attr.GEN_AI_USAGE_INPUT_TOKENS] == session.count(STORY)
    assert seen[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == STORY.max_tokens


@pytest.mark.parametrize("arm", [Arm(0), Arm(3, "kd")], ids=lambda each: each.name)
def test_the_manifest_known_before_the_first_request_is_that_of_its_span(
    session: Any, telemetry: Telemetry, arm: Arm
) -> None:
    pair = session.pair(arm)
    assert is_told(pair)
    answer(session, arm, OPENING)
    seen = telemetry.span().attributes
    assert seen is not None
    assert seen[Attr.SPECDECODE_MANIFEST_ID] == manifest_of(pair, Declared()).id


def test_nothing_is_kept_from_the_request_before(session: Any, telemetry: Telemetry) -> None:
    for _ in range(2):
        answer(session, Arm(2, "kd"), STORY)
    counts = [
        {name: value for name, value in (span.attributes or {}).items() if name.endswith(("tokens", "passes"))}
        for span in telemetry.spans()
    ]
    assert counts[0] == counts[1]
    assert Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS not in counts[1]


def test_messages_go_through_the_chat_template_and_text_goes_as_it_is(session: Any) -> None:
    tokenizer = mlx_lm.utils.load_tokenizer(model_path("target"))
    assert STORY.messages is not None
    assert session._tokens.of(STORY) == chat_tokens(tokenizer, STORY.messages[0]["content"])
    assert session._tokens.of(OPENING) == tokenizer.encode(OPENING.text)


def test_sampling_is_the_arms_and_a_seed_repeats_it(session: Any, telemetry: Telemetry) -> None:
    arm = Arm(2, "kd", temperature=0.9, top_k=20)
    texts = [answer(session, arm, STORY, seed=seed) for seed in (1, 2, 1)]
    assert texts[0] == texts[2]
    assert texts[0] != texts[1]
    seen = telemetry.spans()[0].attributes
    assert seen is not None
    assert seen[Attr.GEN_AI_REQUEST_TEMPERATURE] == 0.9
    assert seen[Attr.GEN_AI_REQUEST_TOP_K] == 20


def test_threads_get_what_they_get_alone_and_wait_for_each_other(session: Any) -> None:
    arms = [Arm(4, "kd"), Arm(2, "kd", temperature=0.8)]
    alone = [[answer(session, arm, STORY, seed=number) for arm in arms] for number in range(3)]
    assert session.queued(0) < 0.1
    assert answers_of_threads(session, 3, arms) == alone


def test_who_waits_is_told_for_how_long(session: Any) -> None:
    with closing(session.stream(Arm(0), STORY, 0, 0)) as first:
        next(first)
        began = threading.Event()

        def ask() -> None:
            began.set()
            answer(session, Arm(0), OPENING, thread=1)

        waiting = threading.Thread(target=ask)
        waiting.start()
        assert began.wait(60)
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join()
    assert session.queued(1) > 0.01


@pytest.mark.skipif(not hasattr(mx, "clear_streams"), reason="this MLX has no streams of threads")
def test_a_thread_ends_its_streams_so_that_the_process_can_exit(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    clear = mx.clear_streams

    def watched() -> None:
        ended.append(threading.get_ident())
        clear()

    monkeypatch.setattr(mx, "clear_streams", watched)
    threads: list[int] = []

    def ask(number: int) -> None:
        threads.append(threading.get_ident())
        for _ in range(2):
            answer(session, Arm(0), longer(OPENING, 4), thread=number)

    answer(session, Arm(0), longer(OPENING, 4))
    at_once(2, ask)
    assert sorted(ended) == sorted(threads)


def test_a_stop_text_ends_an_answer_and_is_no_part_of_it(session: Any) -> None:
    whole = answer(session, Arm(0), STORY)
    assert " named Nora" in whole
    with closing(load(drafts={"": "tiny:draft-kd"}, stop=("castle", " named Nora"))) as stopping:
        texts = [answer(stopping, arm, STORY) for arm in (Arm(0), Arm(4), Arm(0))]
    assert texts == [whole.partition(" named Nora")[0]] * 3


def test_a_prompt_that_does_not_fit_is_told_with_its_numbers(session: Any) -> None:
    with pytest.raises(AcceptanceError, match=r"^prompt 'story of 2000' does not fit: \d+ tokens and max_tokens 2000"):
        session.count(longer(STORY, 2000))


def test_the_allocators_peak_is_that_of_a_threads_last_request(session: Any) -> None:
    answer(session, Arm(0), OPENING)
    short = session.engine_peak(0)
    answer(session, Arm(4, "kd"), longer(STORY, 100))
    long = session.engine_peak(0)
    answer(session, Arm(0), OPENING)

    assert short > 1_000_000
    assert session.engine_peak(0) < long
    assert session.engine_peak(0) == pytest.approx(short, rel=0.02)


def test_the_target_runs_alone_before_its_drafts_are_loaded() -> None:
    seen: list[object] = []

    def watch(session: Any) -> None:
        seen.append(answer(session, Arm(0), OPENING))
        with pytest.raises(AcceptanceError, match="no draft 'kd' was given"):
            answer(session, Arm(2, "kd"), OPENING)

    models = Models("tiny", {"kd": "tiny:draft-kd"})
    with closing(ENGINE.load(models, watch)) as session:
        assert seen == [answer(session, Arm(0), OPENING)] == [answer(session, Arm(2, "kd"), OPENING)]


def test_options_reach_the_requests_of_all_arms(session: Any, telemetry: Telemetry) -> None:
    options = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0, "prefill_step_size": 4}
    with closing(load(drafts={"kd": "tiny:draft-kd"}, options=options)) as stepping:
        for each in (session, stepping):
            for arm in (Arm(0), Arm(2, "kd")):
                assert len(answer(each, arm, OPENING)) > 20
    passes = [(span.attributes or {})[Attr.SPECDECODE_PREFILL_PASSES] for span in telemetry.spans()]
    assert passes[0] < passes[2]
    assert passes[1] < passes[3]


def test_arms_that_cannot_be_run_are_told_before_they_are(session: Any) -> None:
    with pytest.raises(AcceptanceError, match=r"no draft 'q4' was given, as k=2 q4 asks for"):
        session.pair(Arm(2, "q4"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"target": "tiny:big"}, r"no model 'tiny:big' ships"),
        ({"target": "no-such-owner/no-such-model"}, r"there is no model no-such-owner/no-such-model: .* `hf download`"),
        ({"target": "no/such/place"}, r"there is no model place"),
        ({"drafts": {"": "tiny:nothing"}}, r"no model 'tiny:nothing' ships"),
        ({"options": {"n_ctx": 512}}, r"MLX-LM has no option n_ctx here; it takes kv_bits, "),
        ({"options": {"kv_bits": "four"}}, r"kv_bits must be a whole number"),
        ({"options": {"max_kv_size": 512}}, r"MLX-LM leaves max_kv_size out where there is a draft"),
        ({"stop": ("",)}, r"a stop text is empty"),
    ],
)
def test_what_cannot_be_loaded_is_told(more: dict[str, Any], told: str) -> None:
    with pytest.raises(AcceptanceError, match=told):
        load(**more)


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[], Path]:
    """Copies the tiny target into a folder of its own."""
    return lambda: Path(shutil.copytree(model_path("target"), tmp_path / "copy"))


def test_a_repository_is_taken_from_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    cached, commit = tmp_path / "models--somebody--small", "0" * 40
    shutil.copytree(model_path("target"), cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    with closing(load("somebody/small")) as loaded:
        assert loaded.pair(Arm(0)).target.name == "somebody/small"
    (cached / "snapshots" / commit / "model.safetensors").unlink()
    with pytest.raises(AcceptanceError, match=r"somebody/small"):
        load("somebody/small")


def test_a_folder_without_weights_is_told(copied: Callable[[], Path]) -> None:
    folder = copied()
    (folder / "model.safetensors").unlink()
    with pytest.raises(AcceptanceError, match=r"^copy holds no model for MLX-LM: config.json and model"):
        load(str(folder))


def test_a_model_that_mlx_does_not_know_is_told_without_its_folder(copied: Callable[[], Path]) -> None:
    folder = copied()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "nothing_known"}))
    with pytest.raises(AcceptanceError, match=r"^MLX-LM cannot load copy \(ValueError: ") as raised:
        load(str(folder))
    assert str(folder.parent) not in str(raised.value)


def test_a_file_is_told_to_be_llama_cpps(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    with pytest.raises(AcceptanceError, match=r"^model.gguf is a file, and MLX-LM loads folders"):
        load(str(file))


@pytest.mark.parametrize(
    ("vocabulary", "told"), [(600, r"it has \d+ tokens, the target \d+"), (None, "their tokens are others")]
)
def test_a_draft_of_other_tokens_is_told(tmp_path: Path, vocabulary: int | None, told: str) -> None:
    size = vocabulary or json.loads((model_path("target") / "config.json").read_text())["vocab_size"]
    draft = cycle.build(tmp_path, vocabulary=size).draft
    with pytest.raises(AcceptanceError, match=rf"^draft cannot draft for tiny: {told}\. Take a draft of"):
        load(drafts={"": str(draft)})


def test_a_model_that_cannot_take_tokens_back_runs_without_a_draft_only(copied: Callable[[], Path]) -> None:
    folder = recurrent(copied())
    with closing(load(str(folder))) as alone:
        answer(alone, Arm(0), longer(OPENING, 4))
    with pytest.raises(AcceptanceError, match=r"^copy cannot be the target: its caches cannot take back"):
        load(str(folder), {"": "tiny:draft"})
    with pytest.raises(AcceptanceError, match=r"^copy cannot be a draft: its caches cannot take back"):
        load(drafts={"": str(folder)})


def test_messages_without_a_chat_template_are_told(copied: Callable[[], Path]) -> None:
    folder = copied()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with closing(load(str(folder))) as plain:
        assert plain.count(OPENING) > 0
        with pytest.raises(AcceptanceError, match=r"^copy has no chat template, so prompt 'story' cannot"):
            plain.count(STORY)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx_lm", None)
    with pytest.raises(
        AcceptanceError, match=r'^MLX-LM is not installed: pip install "otel-specdecode\[acceptance,mlx'
    ):
        load()


def recurrent(folder: Path) -> Path:
    """Puts a small Mamba of random weights in place of a folder's model."""
    from mlx.utils import tree_flatten
    from mlx_lm.models import mamba

    config: dict[str, Any] = {"model_type": "mamba", "hidden_size": 32, "intermediate_size": 64, "state_size": 8}
    config |= {"num_hidden_layers": 1, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 2}
    config["vocab_size"] = json.loads((folder / "config.json").read_text())["vocab_size"]
    model = mamba.Model(mamba.ModelArgs.from_dict(config))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (folder / "config.json").write_text(json.dumps(config))
    return folder
