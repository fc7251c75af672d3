"""Known llama-cpp-python conditions, met on the real engine, show as attribute, counter, event, and on stderr."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from gguf import GGUFWriter  # noqa: E402
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding  # noqa: E402

from otel_specdecode.telemetry.names import Attr, Event  # noqa: E402
from otel_specdecode.testing.capture import Telemetry  # noqa: E402
from otel_specdecode.tiny_pair.cycle import CyclePair, build  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402
from tests.engines.llama_cpp.conftest import QUIET, Pair  # noqa: E402

if tuple(map(int, llama_cpp.__version__.split(".")[:3])) < (0, 3, 36):
    pytest.skip("how the engine pads and how it aborts differs between releases", allow_module_level=True)

pytestmark = pytest.mark.llama_cpp

ROOT = Path(__file__).parents[3]
PROMPT = [301, 302, 303]
MESSAGES = [{"role": "user", "content": "hello"}]
K = 4


class Walk(LlamaDraftModel):  # type: ignore[misc]
    """Proposes what the target will say, or something else; a custom draft.

    Without `tells` nobody knows beforehand how much.
    """

    def __init__(self, truth: CyclePair, k: int = K, *, right: bool = True, tells: bool = True) -> None:
        self._truth, self._k, self._right = truth, k, right
        if tells:
            self.num_pred_tokens = k

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        tokens = self._truth.tokens(int(input_ids[-1]), self._k)
        return np.array(tokens if self._right else [300 for _ in tokens], dtype=np.intc)


class Silent(LlamaDraftModel):  # type: ignore[misc]
    """Proposes nothing, whatever length and model it tells of."""

    def __init__(self, k: int = K, llama: Any = None) -> None:
        self.num_pred_tokens = k
        self.llama = llama

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        return np.array([], dtype=np.intc)


def hazards(telemetry: Telemetry) -> list[tuple[str, ...]]:
    """The hazard ids of every span so far, without those that only tell that a silent draft proposed nothing."""
    found = [dict(span.attributes or {}).get(Attr.SPECDECODE_HAZARD_IDS, ()) for span in telemetry.spans()]
    return [tuple(hazard for hazard in ids if hazard != "nothing_proposed") for ids in found]


def complete(llama: Any, tokens: int = 6, prompt: list[int] | None = None, **options: Any) -> Any:
    """Make one greedy completion."""
    return llama.create_completion(prompt or PROMPT, max_tokens=tokens, temperature=0.0, **options)


def told(text: str) -> list[str]:
    """Our lines on stderr."""
    return [line for line in text.splitlines() if line.startswith("otel-specdecode: hazard ")]


@pytest.mark.parametrize("draft", [False, True])
def test_an_ordinary_run_meets_none(
    draft: bool, cycle: Pair, telemetry: Telemetry, capfd: pytest.CaptureFixture[str]
) -> None:
    """No attribute, no event, nothing on stderr, and zeros in every hazard series."""
    assert cycle.truth is not None
    llama = cycle.llama(Walk(cycle.truth) if draft else None)
    complete(llama)
    list(complete(llama, stream=True))
    llama.create_chat_completion(MESSAGES, max_tokens=6, temperature=0.0)
    loop = llama.generate(PROMPT, temp=0.0)
    next(loop)
    loop.close()
    assert hazards(telemetry) == [()] * 4
    assert telemetry.events(Event.SPECDECODE_HAZARD_DETECTED) == []
    assert telemetry.total("specdecode.hazards") == 0
    assert told(capfd.readouterr().err) == []


def test_a_hazard_shows_everywhere(cycle: Pair, telemetry: Telemetry) -> None:
    """Attribute, counter, and an event in the span's context."""
    met = ("scores_overflow", "context_not_padded", "nothing_proposed")
    loop = cycle.llama(Silent(), n_ctx=300).generate(PROMPT, temp=0.0)
    for _ in range(3):
        next(loop)
    loop.close()
    span = telemetry.span()
    assert dict(span.attributes or {})[Attr.SPECDECODE_HAZARD_IDS] == met
    events = telemetry.events(Event.SPECDECODE_HAZARD_DETECTED)
    assert {event.event_name for event in events} == {Event.SPECDECODE_HAZARD_DETECTED}
    assert tuple(event.attributes[Attr.SPECDECODE_HAZARD_ID] for event in events) == met
    assert {event.trace_id for event in events} == {span.context.trace_id}
    for hazard in met:
        assert telemetry.total("specdecode.hazards", hazard_id=hazard) == 1


# Arrays that are too short


@pytest.fixture(scope="module")
def agreeing(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A target whose every proposal is right."""
    folder = tmp_path_factory.mktemp("agreeing")
    truth = build(folder, agreement=1.0)
    return Pair(convert(truth.target, folder / "target.gguf", "f32"), folder / "none", truth)


TOKENS = 12
ROWS = len(PROMPT) + TOKENS - 1 + K
"""Rows that a run of so many tokens needs where its last token is the first of a round."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("rows", "overflows"), [(ROWS - 1, True), (ROWS + 1, False), (ROWS + 100, False)])
def test_scores_for_one_batch_only(
    rows: int, overflows: bool, stream: bool, agreeing: Pair, telemetry: Telemetry
) -> None:
    """With a draft and without logits_all=True the engine keeps n_batch rows: told where it raises, and only there."""
    assert agreeing.truth is not None
    llama = agreeing.llama(Walk(agreeing.truth), logits_all=False, n_batch=rows, n_ctx=512)
    assert llama.scores.shape[0] == rows
    failed = False
    try:
        list(complete(llama, TOKENS, stream=stream))
    except ValueError:
        failed = True
    assert failed is overflows
    assert hazards(telemetry) == [("scores_overflow",) if overflows else ()]


def test_scores_that_are_short_for_the_prompt_alone(agreeing: Pair, telemetry: Telemetry) -> None:
    """It is told before the prompt is evaluated, where the engine raises."""
    assert agreeing.truth is not None
    llama = agreeing.llama(Walk(agreeing.truth), logits_all=False, n_batch=32, n_ctx=512)
    with pytest.raises(ValueError, match="broadcast"):
        complete(llama, 2, prompt=[301] * 40)
    assert hazards(telemetry) == [("scores_overflow",)]


def test_without_a_limit_the_context_is_the_limit(agreeing: Pair, telemetry: Telemetry) -> None:
    """A token loop that the caller runs, or max_tokens=-1, may come to the end of the context."""
    assert agreeing.truth is not None
    for rows in (255, 256):
        llama = agreeing.llama(Walk(agreeing.truth), logits_all=False, n_batch=rows, n_ctx=256)
        loop = llama.generate(PROMPT, temp=0.0)
        next(loop)
        loop.close()
    llama = agreeing.llama(Walk(agreeing.truth), logits_all=False, n_batch=64, n_ctx=256)
    with pytest.raises(ValueError, match="broadcast"):
        complete(llama, -1)
    assert hazards(telemetry) == [("scores_overflow",), (), ("scores_overflow",)]


def test_an_autoregressive_run_needs_no_rows(agreeing: Pair, telemetry: Telemetry) -> None:
    """No draft, no scores kept, whatever the context."""
    complete(agreeing.llama(n_batch=16, n_ctx=300), 40)
    assert hazards(telemetry) == [()]


@pytest.mark.parametrize(("tokens", "told_of"), [(250, False), (400, True)])
def test_a_context_that_is_not_padded(tokens: int, told_of: bool, agreeing: Pair, telemetry: Telemetry) -> None:
    """llama.cpp rounds the context up to 512, the engine's arrays stay at 300: a run that goes so far raises."""
    assert agreeing.truth is not None
    # With n_batch=512 and without logits_all=True the scores have 512 rows: only the token ids are too short.
    llama = agreeing.llama(Walk(agreeing.truth), logits_all=False, n_batch=512, n_ctx=300)
    assert (llama.n_ctx(), len(llama.input_ids)) == (512, 300)
    failed = False
    try:
        complete(llama, tokens)
    except ValueError:
        failed = True
    assert failed is told_of
    assert hazards(telemetry) == [("context_not_padded",) if told_of else ()]


def test_a_context_that_is_padded_may_be_filled(agreeing: Pair, telemetry: Telemetry) -> None:
    """To its last token, and nothing is told."""
    assert agreeing.truth is not None
    answer = complete(agreeing.llama(Walk(agreeing.truth), n_ctx=256), -1)
    assert answer["usage"]["total_tokens"] == 256
    assert hazards(telemetry) == [()]


# Models and processors


def test_logits_processors_with_a_draft(cycle: Pair, telemetry: Telemetry) -> None:
    """Under a draft they see proposed tokens too; without one, or with one that may propose nothing, they do not."""
    processors = llama_cpp.LogitsProcessorList([lambda _, logits: logits])
    assert cycle.truth is not None
    for draft in (Walk(cycle.truth), None, LlamaPromptLookupDecoding(num_pred_tokens=0)):
        complete(cycle.llama(draft), logits_processor=processors)
    assert hazards(telemetry) == [("processors_with_draft",), (), ()]


def test_a_logit_bias_with_a_draft_is_none(cycle: Pair, telemetry: Telemetry) -> None:
    """The engine makes a processor of it that never looks at the tokens; its own for a least length does look."""
    assert cycle.truth is not None
    llama = cycle.llama(Walk(cycle.truth))
    complete(llama, logit_bias={300: -5.0})
    least = llama_cpp.MinTokensLogitsProcessor(4, llama.token_eos())
    complete(llama, logits_processor=llama_cpp.LogitsProcessorList([least]))
    assert hazards(telemetry) == [(), ("processors_with_draft",)]


def test_a_draft_of_another_vocabulary(cycle: Pair, tiny: Pair, telemetry: Telemetry) -> None:
    """1,024 ids against 512."""
    complete(tiny.llama(Silent(llama=cycle.draft_llama())))
    complete(tiny.llama(Silent(llama=tiny.draft_llama())))
    assert hazards(telemetry) == [("vocab_mismatch",), ()]


def test_a_draft_whose_vocabulary_is_padded_otherwise(cycle: Pair, tmp_path: Path, telemetry: Telemetry) -> None:
    """Models of one family differ by some unused ids at the end, which llama.cpp itself allows: no mismatch."""
    truth = build(tmp_path, vocabulary=500)
    path = convert(truth.draft, tmp_path / "short.gguf", "f32")
    complete(cycle.llama(Silent(llama=llama_cpp.Llama(str(path), **QUIET))))
    assert hazards(telemetry) == [()]


def write_mamba(path: Path) -> Path:
    """A recurrent model of one block with the cycle pair's number of ids and random weights."""
    vocabulary, width, inner, state, rank, kernel = 512, 32, 64, 8, 2, 4
    shapes = {
        "token_embd.weight": (vocabulary, width),
        "output_norm.weight": (width,),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.ssm_in.weight": (2 * inner, width),
        "blk.0.ssm_conv1d.weight": (inner, kernel),
        "blk.0.ssm_conv1d.bias": (inner,),
        "blk.0.ssm_x.weight": (rank + 2 * state, inner),
        "blk.0.ssm_dt.weight": (inner, rank),
        "blk.0.ssm_dt.bias": (inner,),
        "blk.0.ssm_a": (inner, state),
        "blk.0.ssm_d": (inner,),
        "blk.0.ssm_out.weight": (width, inner),
    }
    writer = GGUFWriter(path, "mamba")
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"w{number}" for number in range(vocabulary)])
    writer.add_token_merges(["w 0"])
    writer.add_eos_token_id(2)
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(name, random.normal(scale=0.1, size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Loads a recurrent model."""
    path = write_mamba(tmp_path_factory.mktemp("mamba") / "mamba.gguf")
    return functools.partial(llama_cpp.Llama, str(path), n_ctx=256, **QUIET)


def test_a_recurrent_target(mamba: Callable[..., Any], agreeing: Pair, telemetry: Telemetry) -> None:
    """Its state cannot go back over a rejected token: the engine fails there, in speculation alone."""
    assert agreeing.truth is not None
    wrong = Walk(agreeing.truth, right=False)
    with pytest.raises(RuntimeError, match="llama_decode"):
        complete(mamba(draft_model=wrong, logits_all=True))
    complete(mamba())
    assert hazards(telemetry) == [("recurrent_target",), ()]


def test_a_draft_that_cannot_be_trimmed(mamba: Callable[..., Any], cycle: Pair, telemetry: Telemetry) -> None:
    """A recurrent draft cannot drop what was rejected; this one has other tokens than the target, too."""
    complete(cycle.llama(Silent(llama=mamba())))
    assert hazards(telemetry) == [("draft_not_trimmable", "vocab_mismatch")]


# Drafts that do not pay


def test_a_draft_that_proposes_nothing(cycle: Pair, telemetry: Telemetry) -> None:
    """Prompt lookup on words that never repeat; and on some that do."""
    assert cycle.truth is not None
    lookup = LlamaPromptLookupDecoding(num_pred_tokens=K)
    complete(cycle.llama(lookup))
    repeating = [301, *cycle.truth.tokens(301, 12), 301]
    complete(cycle.llama(lookup), prompt=repeating)
    ids = [dict(span.attributes or {}).get(Attr.SPECDECODE_HAZARD_IDS, ()) for span in telemetry.spans()]
    assert ids == [("nothing_proposed",), ()]
    assert telemetry.total("specdecode.hazards", hazard_id="nothing_proposed") == 1


def test_a_call_without_a_decode_pass_had_nothing_to_propose_for(cycle: Pair, telemetry: Telemetry) -> None:
    """One token comes from the prompt: no draft was asked."""
    complete(cycle.llama(LlamaPromptLookupDecoding(num_pred_tokens=K)), 1)
    assert Attr.SPECDECODE_HAZARD_IDS not in dict(telemetry.span().attributes or {})


def test_a_draft_that_gets_nothing_accepted(cycle: Pair, telemetry: Telemetry) -> None:
    """Zero of at least 20 finished rounds: a 0 in the counter that everybody can see, and a hazard."""
    assert cycle.truth is not None
    llama = cycle.llama(Walk(cycle.truth, right=False))
    complete(llama, 20)
    complete(llama, 21, prompt=[310, 311])
    assert hazards(telemetry) == [(), ("all_rejected",)]
    assert telemetry.total("specdecode.draft.tokens", draft_outcome="accepted") == 0
    assert telemetry.total("specdecode.draft.tokens", draft_outcome="rejected") == (19 + 20) * K


# Aborts of the process, foreseen


def test_a_draft_of_a_batch_is_told_once_for_each_llama(
    cycle: Pair, telemetry: Telemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configured length does not fit in a batch, which is seen at the start: a line on stderr, no text, no path."""
    llamas = [cycle.llama(Silent(k=k), n_batch=16) for k in (15, 16, 20)]
    for llama in llamas:
        for _ in range(2):
            complete(llama)
    assert hazards(telemetry) == [()] * 2 + [("draft_exceeds_batch",)] * 4
    lines = told(capsys.readouterr().err)
    assert [("17" in line, "21" in line) for line in lines] == [(True, False), (False, True)]
    assert all(line.startswith("otel-specdecode: hazard draft_exceeds_batch: ") for line in lines)
    assert all("n_batch" in line and "16" in line for line in lines)
    assert not any(os.sep in line for line in lines)


def test_a_draft_set_on_a_llama_without_logits_is_told_once(
    cycle: Pair, telemetry: Telemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loaded without a draft and without logits_all=True: told at the first call with a draft that may propose."""
    llama = cycle.llama()
    complete(llama)
    for k in (0, K, K):
        llama.draft_model = Silent(k)
        complete(llama)
    ready = cycle.llama(logits_all=True)
    ready.draft_model = Silent()
    complete(ready)
    assert hazards(telemetry) == [(), (), ("logits_not_kept",), ("logits_not_kept",), ()]
    (line,) = told(capsys.readouterr().err)
    assert line.startswith("otel-specdecode: hazard logits_not_kept: ")
    assert "logits_all=True" in line


@pytest.mark.parametrize("stderr", ["none", "closed"])
def test_a_program_without_stderr_is_not_disturbed(
    stderr: str, cycle: Pair, telemetry: Telemetry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under pythonw, or after a daemon closed it: the engine runs, and the span has the hazard."""
    closed = (tmp_path / "closed").open("w")
    closed.close()
    llama = cycle.llama(Silent(k=20), n_batch=16)
    monkeypatch.setattr(sys, "stderr", None if stderr == "none" else closed)
    complete(llama)
    assert hazards(telemetry) == [("draft_exceeds_batch",)]


PROGRAM = """
    import sys
    import numpy as np
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaDraftModel

    model, watched, case = sys.argv[1:]
    if watched == "watched":
        from otel_specdecode.testing import Telemetry
        import otel_specdecode
        telemetry = Telemetry()
        otel_specdecode.instrument(tracer_provider=telemetry.tracer_provider)

    class Draft(LlamaDraftModel):
        def __init__(self, told):
            if told:
                self.num_pred_tokens = 20

        def __call__(self, input_ids, /, **_):
            short = len(input_ids) < before + 4
            return np.array([300] * (2 if short else 20), dtype=np.intc)

    quiet = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
    if case == "no logits":
        llama = Llama(model, **quiet)
        llama.draft_model = Draft(False)
    else:
        llama = Llama(model, n_batch=16, logits_all=True, draft_model=Draft(case == "known length"), **quiet)
    before = len(llama.tokenize(b"the secret word", add_bos=False))
    for chunk in llama.create_completion("the secret word", max_tokens=12, temperature=0.0, stream=True):
        print(chunk["choices"][0]["text"], flush=True)
    print("survived", flush=True)
"""


def run_to_its_death(model: Path, case: str, *, watched: bool) -> subprocess.CompletedProcess[str]:
    """Run a program that the engine aborts."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(model), "watched" if watched else "bare", case]
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="a process dies by another signal there")
@pytest.mark.parametrize(
    ("case", "hazard", "lines"),
    [("no logits", "logits_not_kept", 1), ("known length", "draft_exceeds_batch", 2), ("unknown length", "", 1)],
)
def test_the_line_is_out_before_the_process_dies(case: str, hazard: str, lines: int, cycle: Pair) -> None:
    """The engine ends the process as it does bare, after the same chunks; what we say stands before that.

    A known length is told at the start, and again as the round comes that is fatal; an unknown one only then.
    """
    bare = run_to_its_death(cycle.target, case, watched=False)
    watched = run_to_its_death(cycle.target, case, watched=True)
    assert bare.returncode == watched.returncode == -signal.SIGABRT
    assert bare.stdout == watched.stdout
    assert "survived" not in bare.stdout
    assert told(bare.stderr) == []
    said = told(watched.stderr)
    assert len(said) == lines
    assert all(line.startswith(f"otel-specdecode: hazard {hazard or 'draft_exceeds_batch'}: ") for line in said)
    printed = watched.stderr.splitlines()
    assert printed.index(said[-1]) < next(place for place, line in enumerate(printed) if "GGML_ASSERT" in line)
    assert not any("secret" in line or os.sep in line for line in said)
