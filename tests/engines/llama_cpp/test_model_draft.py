"""A second GGUF as the draft, on the real engine: its proposals, its context, what it refuses, when it ends."""

from __future__ import annotations

import logging
import pickle
import random
import struct
from collections.abc import Iterator
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")
pytest.importorskip("tokenizers", reason="needs the [mlx] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

import llama_cpp
import numpy as np
from gguf import GGUFWriter

from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft
from otel_specdecode.tiny_pair import PROMPTS, model_path
from otel_specdecode.tiny_pair.cycle import CyclePair, build, pattern_of
from otel_specdecode.tiny_pair.gguf import _add_tokenizer, convert

pytestmark = pytest.mark.llama_cpp

THREADS = {"n_threads": 1, "n_threads_batch": 1}
EOS = 2
WORKED_EXAMPLE = [2, 3, 1, 4, 2, 0, 3, 3]
Passes = list[tuple[Any, list[int]]]

# Some releases of llama-cpp-python fail a second time when they let go of a file that they could not load.
UNLOADED = "ignore:.*LlamaModel.__del__:pytest.PytestUnraisableExceptionWarning"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tiny pair as GGUF files in f32, so that batches of any width compute the same."""
    folder = tmp_path_factory.mktemp("gguf")
    names = ("target", "draft", "draft-kd")
    return {name: convert(model_path(name), folder / f"{name}.gguf", "f32") for name in names}


@pytest.fixture(scope="module")
def plain(files: dict[str, Path]) -> Iterator[Any]:
    """The target on its own."""
    llama = opened(files["target"])
    yield llama
    llama.close()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Every `Llama.eval` since, with the tokens it was given, noted where an instrumentation does it: on the class."""
    seen: Passes = []
    engine = llama_cpp.Llama.eval

    def noted(self: Any, tokens: list[int]) -> None:
        seen.append((self, list(tokens)))
        engine(self, tokens)

    monkeypatch.setattr(llama_cpp.Llama, "eval", noted)
    return seen


def opened(path: Path, **options: Any) -> Any:
    return llama_cpp.Llama(str(path), **{"n_ctx": 512, "verbose": False, **THREADS, **options})


def drafting(model: Path | Any, target: Path | Any, **options: Any) -> ModelDraft:
    return ModelDraft(model, target, **{"n_ctx": 512, **THREADS, **options})


def prompt_of(llama: Any, text: str) -> list[int]:
    chat = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    ids: list[int] = llama.tokenize(chat.encode(), add_bos=False, special=True)
    return ids


def greedy(llama: Any, prompt: list[int], n: int) -> list[int]:
    """`n` tokens after a prompt that is evaluated from scratch, EOS or not."""
    llama.reset()
    return list(islice(llama.generate(prompt, temp=0.0, repeat_penalty=1.0), n))


def up_to_eos(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens


def proposed(draft: ModelDraft, ids: list[int]) -> list[int]:
    answer = draft(np.array(ids, dtype=np.intc))
    assert answer.dtype == np.intc
    tokens: list[int] = answer.tolist()
    return tokens


def common(first: list[int], second: list[int]) -> int:
    """How many tokens two texts begin with."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))


# What it proposes


@pytest.mark.parametrize("k", [1, 4, 9])
@pytest.mark.parametrize("name", ["draft", "draft-kd"])
def test_greedy_text_is_the_targets_own(files: dict[str, Path], plain: Any, name: str, k: int) -> None:
    """Prompt after prompt on one pair, so that contexts are kept and cut in between."""
    with drafting(files[name], files["target"], num_pred_tokens=k) as draft:
        target = opened(files["target"], draft_model=draft, logits_all=True)
        for text in PROMPTS[:5]:
            prompt = prompt_of(plain, text)
            stream = target.generate(prompt, temp=0.0, repeat_penalty=1.0)
            assert list(islice(stream, 60)) == greedy(plain, prompt, 60)
        target.close()


def test_a_completion_is_the_targets_own(files: dict[str, Path], plain: Any) -> None:
    with drafting(files["draft-kd"], files["target"]) as draft:
        target = opened(files["target"], draft_model=draft, logits_all=True)
        answers = [
            llama.create_chat_completion(
                [{"role": "user", "content": PROMPTS[0]}], max_tokens=80, temperature=0.0, repeat_penalty=1.0
            )
            for llama in (plain, target)
        ]
        assert answers[0]["choices"] == answers[1]["choices"]
        assert answers[0]["usage"] == answers[1]["usage"]
        target.close()


class Watched(ModelDraft):
    """Notes how long each text was, and what was proposed after it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[tuple[int, list[int]]] = []

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        answer = super().__call__(input_ids, **kwargs)
        self.calls.append((len(input_ids), answer.tolist()))
        return answer


def test_the_worked_example_is_accepted_to_the_token(tmp_path: Path) -> None:
    """The engine's first token comes before any draft; then rounds accept 2, 3, 1, 4, 2, 0, 3, 3 of four each."""
    pair = build(tmp_path, pattern=[True, *pattern_of(WORKED_EXAMPLE, 4)])
    files = gguf_pair(pair)
    with Watched(files[1], files[0], num_pred_tokens=4, n_ctx=512, **THREADS) as draft:
        target = opened(files[0], draft_model=draft, logits_all=True)
        prompt = [*range(300, 320), pair.chat_end]
        tokens = greedy(target, prompt, 1 + 26 + 1)
        target.close()
    assert tokens == pair.tokens(pair.chat_end, 28)
    lengths = [length for length, _ in draft.calls]
    assert [later - earlier - 1 for earlier, later in pairwise(lengths)] == WORKED_EXAMPLE
    text = prompt + tokens
    assert [answer for _, answer in draft.calls] == [pair.drafted(text[length - 1], 4) for length in lengths]


def gguf_pair(pair: CyclePair) -> tuple[Path, Path]:
    target, draft = (convert(folder, folder.with_suffix(".gguf"), "f32") for folder in (pair.target, pair.draft))
    return target, draft


def test_nothing_is_proposed_beyond_an_end_of_generation(tmp_path: Path) -> None:
    """EOS itself is proposed. A text that goes on after it is drafted for again."""
    pair = build(tmp_path, agreement=1.0, eos_after=3)
    target, path = gguf_pair(pair)
    with drafting(path, target, num_pred_tokens=8) as draft:
        assert proposed(draft, [pair.chat_end]) == [*pair.drafted(pair.chat_end, 3), EOS]
        assert proposed(draft, [pair.chat_end, *pair.drafted(pair.chat_end, 4)]) == pair.drafted(EOS, 8)


def test_an_accepted_end_of_generation_ends_the_completion(tmp_path: Path) -> None:
    pair = build(tmp_path, agreement=1.0, eos_after=6)
    files = gguf_pair(pair)
    with drafting(files[1], files[0]) as draft:
        target = opened(files[0], draft_model=draft, logits_all=True)
        answer = target.create_completion([pair.chat_end], max_tokens=50, temperature=0.0, repeat_penalty=1.0)
        target.close()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 6


def test_the_draft_length_may_change_between_requests(files: dict[str, Path], plain: Any, passes: Passes) -> None:
    """With 0 nothing is proposed and the draft is not asked; it catches up when it is asked again."""
    prompt = prompt_of(plain, PROMPTS[0])
    with drafting(files["draft"], files["target"]) as draft:
        assert draft.num_pred_tokens == 4
        whole = greedy(draft.llama, prompt, 6)
        draft.num_pred_tokens = 2
        assert proposed(draft, prompt) == whole[:2]
        draft.num_pred_tokens = 0
        passes.clear()
        assert proposed(draft, [*prompt, *whole[:3]]) == []
        assert passes == []
        draft.num_pred_tokens = 2
        assert proposed(draft, [*prompt, *whole[:4]]) == whole[4:6]


@pytest.mark.parametrize("wrong", [-1, True, 2.0, "4", None])
def test_a_draft_length_is_an_int_from_0_on(files: dict[str, Path], wrong: Any) -> None:
    with pytest.raises(ValueError, match="num_pred_tokens must be an int from 0 on"):
        drafting(files["draft"], files["target"], num_pred_tokens=wrong)
    with drafting(files["draft"], files["target"], num_pred_tokens=3) as draft:
        with pytest.raises(ValueError, match="num_pred_tokens"):
            draft.num_pred_tokens = wrong
        assert draft.num_pred_tokens == 3


def test_an_answer_is_the_callers_to_change(files: dict[str, Path], plain: Any) -> None:
    ids = np.array(prompt_of(plain, PROMPTS[1]), dtype=np.intc)
    with drafting(files["draft"], files["target"]) as draft:
        first = draft(ids)
        expected = first.tolist()
        assert not np.shares_memory(first, draft.llama.input_ids)
        first[:] = 0
        assert draft(ids).tolist() == expected


# Its context


def kept(chance: random.Random, ids: list[int], proposal: list[int]) -> list[int]:
    """What a target might ask about next: some of the proposal and a token of its own, now and then another text."""
    kind = chance.random()
    if kind < 0.1:
        return [chance.randrange(3, 1024) for _ in range(chance.randrange(1, 40))]
    if kind < 0.2:
        return ids[: chance.randrange(1, len(ids) + 1)]
    return [*ids, *proposal[: chance.randrange(len(proposal) + 1)], chance.randrange(3, 1024)]


@pytest.mark.parametrize("seed", range(8))
def test_the_draft_keeps_in_step_and_feeds_only_what_is_new(files: dict[str, Path], passes: Passes, seed: int) -> None:
    """Each proposal is that of a draft that reads the whole text again; the passes read nothing twice."""
    chance = random.Random(seed)
    fresh = opened(files["draft"])
    with drafting(files["draft"], files["target"]) as draft:
        ids, held = [5, 6, 7], []
        for _ in range(25):
            draft.num_pred_tokens = k = chance.randrange(7)
            passes.clear()
            proposal = proposed(draft, ids)
            fed = [tokens for llama, tokens in passes if llama is draft.llama]
            assert proposal == up_to_eos(greedy(fresh, ids, k))
            if k:
                new = ids[min(common(held, ids), len(ids) - 1) :]
                assert fed == [new, *([token] for token in proposal[:-1])]
                held = [*ids, *proposal[:-1]]
            ids = kept(chance, ids, proposal)
    fresh.close()


def test_a_rejected_round_feeds_one_token_and_an_accepted_one_two(tmp_path: Path, passes: Passes) -> None:
    """After a correction only that is new; after a bonus also the last proposed token, which was never fed."""
    pair = build(tmp_path)
    target, path = gguf_pair(pair)
    with drafting(path, target, num_pred_tokens=3) as draft:
        prompt = [300, 301, pair.chat_end]
        first = proposed(draft, prompt)
        proposed(draft, [*prompt, first[0], 305])
        bonus = [*prompt, first[0], 305, *pair.drafted(305, 3), 306]
        proposed(draft, bonus)
    fed = [len(tokens) for _, tokens in passes]
    assert fed == [3, 1, 1, 1, 1, 1, 2, 1, 1]


def test_prompts_longer_than_a_batch_are_fed_in_pieces(files: dict[str, Path]) -> None:
    ids = [random.Random(1).randrange(3, 1024) for _ in range(300)]
    fresh = opened(files["draft"])
    with drafting(files["draft"], files["target"], n_batch=64) as draft:
        assert proposed(draft, ids) == up_to_eos(greedy(fresh, ids, 4))
    fresh.close()


def test_a_full_context_shortens_proposals_and_then_ends_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Which is said once, in a warning that names the file and no folder."""
    pair = build(tmp_path)
    target, path = gguf_pair(pair)
    with drafting(path, target, n_ctx=256, num_pred_tokens=8) as draft, caplog.at_level(logging.WARNING):
        text = [pair.chat_end, *pair.drafted(pair.chat_end, 400)]
        assert [len(proposed(draft, text[:length])) for length in (200, 248, 250, 255)] == [8, 8, 6, 1]
        assert not caplog.records
        assert [proposed(draft, text[:length]) for length in (256, 257, 400)] == [[], [], []]
        assert proposed(draft, text[:100]) == text[100:108]
    (record,) = caplog.records
    assert record.name == "otel_specdecode"
    assert record.getMessage().startswith("draft.gguf proposes nothing more: the text has outgrown its context of 256")
    assert str(tmp_path) not in record.getMessage()


def test_a_target_goes_on_after_its_draft_is_full(files: dict[str, Path], plain: Any) -> None:
    prompt = prompt_of(plain, PROMPTS[0])
    with drafting(files["draft"], files["target"], n_ctx=256) as draft:
        target = opened(files["target"], draft_model=draft, logits_all=True)
        assert greedy(target, prompt, 300) == greedy(plain, prompt, 300)
        target.close()


def test_the_padding_of_a_context_is_not_used(files: dict[str, Path]) -> None:
    """llama.cpp rounds 100 up, but llama-cpp-python remembers 100 tokens and no more."""
    with drafting(files["draft"], files["target"], n_ctx=100, num_pred_tokens=8) as draft:
        assert draft.llama.n_ctx() > 100
        assert 0 < len(proposed(draft, list(range(10, 108)))) <= 2
        assert proposed(draft, list(range(10, 110))) == []


def test_the_context_is_the_targets_and_the_log_silent_unless_given(files: dict[str, Path]) -> None:
    """From a file the target's is not known: there it is llama-cpp-python's own default."""
    target = opened(files["target"], n_ctx=768, logits_all=True)
    given: list[tuple[Any, dict[str, int], int]] = [
        (target, {}, 768),
        (target, {"n_ctx": 256}, 256),
        (files["target"], {}, 512),
        (files["target"], {"n_ctx": 0}, 1024),
    ]
    for source, options, context in given:
        with ModelDraft(files["draft"], source, **options) as draft:
            assert (draft.llama.n_ctx(), draft.llama.verbose) == (context, False)
    target.close()


def test_a_loaded_target_takes_the_draft_later(files: dict[str, Path], plain: Any) -> None:
    target = opened(files["target"], logits_all=True)
    with ModelDraft(str(files["draft"]), target, **THREADS) as draft:
        target.draft_model = draft
        prompt = prompt_of(plain, PROMPTS[2])
        assert greedy(target, prompt, 60) == greedy(plain, prompt, 60)
    target.close()


def test_nothing_is_proposed_after_ids_that_are_no_tokens(
    files: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Where an image stands, llama-cpp-python hands over whatever lies in its array. Nor after no text at all."""
    with drafting(files["draft"], files["target"]) as draft, caplog.at_level(logging.WARNING):
        assert [proposed(draft, ids) for ids in ([5, -1, 6], [5, 70_000, 6], [])] == [[], [], []]
        assert len(proposed(draft, [5, 6])) > 0
    assert [record.getMessage() for record in caplog.records] == [
        "draft.gguf proposes nothing after a text with tokens that it does not know"
    ]


# Vocabularies


def altered(path: Path, out: Path, old: bytes, new: bytes) -> Path:
    """A copy of a file in which some bytes of the header are others."""
    data = path.read_bytes()
    assert old in data
    assert len(old) == len(new)
    out.write_bytes(data.replace(old, new, 1))
    return out


def flag(name: bytes, value: int) -> bytes:
    return b"tokenizer.ggml." + name + struct.pack("<IB", 7, value)


def written(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def token_of(llama: Any, token: int) -> bytes:
    text: bytes = llama._model.token_get_text(token).encode()
    return struct.pack("<Q", len(text)) + text


def test_a_draft_that_begins_texts_otherwise_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    other = altered(files["draft"], tmp_path / "x.gguf", flag(b"add_bos_token", 0), flag(b"add_bos_token", 1))
    with pytest.raises(ValueError, match="At the beginning of a text the draft adds token 0, the target nothing"):
        drafting(other, files["target"])
    with drafting(other, other):
        pass


def test_a_draft_that_ends_texts_otherwise_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    other = altered(files["target"], tmp_path / "x.gguf", flag(b"add_bos_token", 0), flag(b"add_eos_token", 1))
    with pytest.raises(ValueError, match="At the end of a text the draft adds nothing, the target token 2"):
        drafting(files["draft"], other)


def test_a_draft_with_another_kind_of_tokenizer_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    other = altered(files["target"], tmp_path / "x.gguf", *(struct.pack("<Q", 4) + kind for kind in (b"gpt2", b"bert")))
    with pytest.raises(ValueError, match="The draft's tokenizer is byte-level BPE, the target's WordPiece"):
        drafting(files["draft"], other)


def test_a_target_without_a_vocabulary_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    """The engine would end the process at the first look into it."""
    other = tmp_path / "x.gguf"
    writer = GGUFWriter(other, "llama")
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(1024)
    written(writer)
    with pytest.raises(ValueError, match=r"x\.gguf has no vocabulary"):
        drafting(files["draft"], other)


def test_a_draft_with_another_token_is_refused(files: dict[str, Path], plain: Any, tmp_path: Path) -> None:
    """The message says which files and token, what to do, and no folder."""
    length, text = struct.calcsize("<Q"), token_of(plain, 700)
    other = altered(files["draft"], tmp_path / "other.gguf", text, text[:length] + b"~" * len(text[length:]))
    with pytest.raises(ValueError, match=r"Token 700 is '~+' in the draft and '.*' in the target\.") as caught:
        drafting(other, files["target"])
    said = str(caught.value)
    assert said.startswith("other.gguf cannot draft for target.gguf: their vocabularies differ.")
    assert said.endswith("Take a draft of the target's own model family, which has the same tokenizer.")
    assert str(tmp_path) not in said


def test_the_first_five_tokens_may_have_other_names(files: dict[str, Path], plain: Any, tmp_path: Path) -> None:
    """As llama.cpp allows."""
    old = token_of(plain, 3)
    other = altered(files["draft"], tmp_path / "x.gguf", old, old[:-1] + b"\x7f")
    with drafting(other, files["target"]) as draft:
        assert proposed(draft, [5, 6, 7])


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Drafts of one vocabulary in several sizes, the larger going on where the smaller end."""
    pairs = {size: build(tmp_path_factory.mktemp(f"{size}"), vocabulary=size) for size in (512, 600, 641)}
    return {size: gguf_pair(pair)[1] for size, pair in pairs.items()}


def test_sizes_may_differ_by_the_padding_of_a_family(sizes: dict[int, Path]) -> None:
    """By 128 tokens at most."""
    for draft, target in ((512, 641), (641, 512)):
        said = f"The draft has {draft} tokens, the target {target}; they may differ by 128"
        with pytest.raises(ValueError, match=said):
            drafting(sizes[draft], sizes[target])


def test_a_token_that_the_target_lacks_is_never_proposed(sizes: dict[int, Path]) -> None:
    contexts = [[token] for token in range(300, 500)]
    with drafting(sizes[600], sizes[600], num_pred_tokens=1) as draft:
        assert any(proposed(draft, ids)[0] >= 512 for ids in contexts)
    with drafting(sizes[600], sizes[512], num_pred_tokens=1) as draft:
        assert all(proposed(draft, ids)[0] < 512 for ids in contexts)


def test_a_token_that_the_draft_lacks_silences_it(sizes: dict[int, Path]) -> None:
    """And does not disturb the target."""
    with drafting(sizes[512], sizes[600]) as draft:
        assert proposed(draft, [300, 550, 301]) == []
        assert len(proposed(draft, [300, 301])) == 4


# What else it refuses


def vocabulary_of(architecture: str, setting: str, path: Path) -> Path:
    """A file of another architecture with the tiny pair's tokenizer, and without weights."""
    writer = GGUFWriter(path, architecture)
    writer.add_uint32(f"{architecture}.{setting}", 4)
    _add_tokenizer(writer, model_path("draft"))
    written(writer)
    return path


@pytest.mark.filterwarnings(UNLOADED)
@pytest.mark.parametrize(
    ("architecture", "setting"),
    [("mamba", "ssm.conv_kernel"), ("jamba", "ssm.conv_kernel"), ("lfm2", "shortconv.l_cache")],
)
def test_a_draft_that_cannot_rewind_is_refused(tmp_path: Path, architecture: str, setting: str) -> None:
    """Recurrent and hybrid ones. The architecture decides, so the vocabulary is enough to load."""
    path = vocabulary_of(architecture, setting, tmp_path / "state.gguf")
    try:
        opened(path, vocab_only=True).close()
    except ValueError:
        pytest.skip(f"this llama-cpp-python does not know {architecture}")
    with pytest.raises(ValueError, match=r"^state\.gguf cannot be a draft: it is a recurrent or hybrid model"):
        drafting(path, path, vocab_only=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"vocab_only": True}, "without its weights"), ({"embedding": True}, "for embeddings")],
)
def test_a_draft_without_logits_is_refused(files: dict[str, Path], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        drafting(files["draft"], files["target"], **options)


@pytest.mark.filterwarnings(UNLOADED)
def test_a_bad_file_raises_the_engines_own_error(files: dict[str, Path], tmp_path: Path) -> None:
    """For a file that is missing or is no GGUF, as draft and as target."""
    text = tmp_path / "text.gguf"
    text.write_text("no model")
    for bad in (text, tmp_path / "absent.gguf"):
        with pytest.raises(ValueError, match=r"\.gguf") as own:
            opened(bad)
        for arguments in ((bad, files["target"]), (files["draft"], bad)):
            with pytest.raises(ValueError, match=r"\.gguf") as caught:
                drafting(*arguments)
            assert str(caught.value) == str(own.value)


def test_options_for_a_draft_that_is_loaded_already_are_refused(files: dict[str, Path]) -> None:
    llama = opened(files["draft"])
    with pytest.raises(ValueError, match="loaded already, so n_ctx, n_threads would have no effect"):
        ModelDraft(llama, files["target"], n_ctx=512, n_threads=1)
    llama.close()


def test_one_llama_cannot_draft_for_itself(files: dict[str, Path]) -> None:
    llama = opened(files["target"], logits_all=True)
    with pytest.raises(ValueError, match="need a Llama each"):
        ModelDraft(llama, llama)
    llama.close()


# Whose it is


def test_a_callers_llama_stays_the_callers(files: dict[str, Path], plain: Any) -> None:
    """It may have been used before, and is not closed with the draft."""
    prompt = prompt_of(plain, PROMPTS[3])
    llama = opened(files["draft"])
    whole = greedy(llama, prompt, 12)
    with ModelDraft(llama, files["target"]) as draft:
        assert draft.llama is llama
        assert proposed(draft, [*prompt, *whole[:4]]) == whole[4:8]
    with pytest.raises(RuntimeError, match="the draft model is closed"):
        proposed(draft, prompt)
    assert greedy(llama, prompt, 12) == whole
    llama.close()


def test_a_closed_draft_says_so(files: dict[str, Path]) -> None:
    """Whether it was closed itself, twice even, or its `Llama` by the caller."""
    draft = drafting(files["draft"], files["target"])
    draft.close()
    draft.close()
    llama = opened(files["draft"])
    orphan = ModelDraft(llama, files["target"])
    llama.close()
    for each in (draft, orphan):
        with pytest.raises(RuntimeError, match="the draft model is closed"):
            proposed(each, [5, 6])
    with pytest.raises(RuntimeError, match="the draft model is closed"):
        pickle.dumps(draft)


def test_a_closed_llama_is_refused(files: dict[str, Path]) -> None:
    llama, other = opened(files["draft"]), opened(files["target"])
    llama.close()
    other.close()
    with pytest.raises(ValueError, match=r"draft\.gguf cannot be a draft: it is closed"):
        ModelDraft(llama, files["target"])
    with pytest.raises(ValueError, match=r"the target target\.gguf is closed"):
        ModelDraft(files["draft"], other)


def test_what_was_loaded_is_freed_when_construction_fails(
    sizes: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft, and the vocabulary of the target."""
    closed: list[str] = []
    engine = llama_cpp.Llama.close

    def noted(self: Any) -> None:
        if self.ctx is not None:
            closed.append(self.model_path)
        engine(self)

    monkeypatch.setattr(llama_cpp.Llama, "close", noted)
    with pytest.raises(ValueError, match="they may differ by") as caught:
        drafting(sizes[512], sizes[641])
    assert caught.value.__traceback__ is not None  # nothing was freed only because it was forgotten
    assert sorted(closed) == sorted([str(sizes[512]), str(sizes[641])])


def test_a_pickled_target_comes_back_with_its_draft(files: dict[str, Path], plain: Any) -> None:
    try:
        pickle.dumps(plain)
    except AttributeError:
        pytest.skip("this llama-cpp-python cannot pickle a Llama")
    prompt = prompt_of(plain, PROMPTS[0])
    with drafting(files["draft"], files["target"], num_pred_tokens=3) as draft:
        target = opened(files["target"], draft_model=draft, logits_all=True)
        stored = pickle.dumps(target)
        target.close()
    target = pickle.loads(stored)
    with target.draft_model as restored:
        assert isinstance(restored, ModelDraft)
        assert restored.num_pred_tokens == 3
        assert greedy(target, prompt, 60) == greedy(plain, prompt, 60)
        assert len(proposed(restored, prompt)) == 3
    target.close()
