"""Our counts on llama-cpp-python against those of llama.cpp's own server: same files, same prompts, same tokens.

Both programs verify their drafts in the same rounds; what they count differs where a draft or a stream ends. Each such
difference is a sentence and a line of `server_proposal` and `rounds_here`. They say from the tokens how much the server
must propose, and from the server's report what we must report, without a margin. The context is large enough that its
end, where llama-server drafts one token less and drops accepted tokens, is never reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="needs the [demo] extra")
pytest.importorskip("numpy", reason="needs the [mlx] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")
pytest.importorskip("tokenizers", reason="needs the [mlx] extra")
llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from opentelemetry.sdk.trace import ReadableSpan  # noqa: E402

from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft  # noqa: E402
from otel_specdecode.telemetry.names import Attr, Metrics  # noqa: E402
from otel_specdecode.testing.capture import Telemetry, capture  # noqa: E402
from otel_specdecode.tiny_pair import PROMPTS, ModelName, model_path  # noqa: E402
from otel_specdecode.tiny_pair.cycle import CyclePair, build  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402
from tests.engines.llama_cpp.llama_server import VARIABLE, Answer, Counters, Step, program, running  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.llama_cpp,
    pytest.mark.skipif(
        program() is None,
        reason=f"without a llama-server program: scripts/build_llama_server.py builds one, {VARIABLE} names it",
    ),
]

EOS = 2
CONTEXT = 512
LENGTHS = (2, 4, 6)

Propose = Callable[[list[int]], list[int]]
"""What the draft, asked by itself, proposes on llama-cpp-python after these tokens."""


@dataclass(frozen=True)
class Files:
    """A pair of models as llama.cpp takes them."""

    target: Path
    draft: Path


@dataclass(frozen=True)
class Request:
    """What both programs are asked.

    Attributes:
        prompt: Token ids.
        limit: The most tokens.
        stop: Stop strings.
    """

    prompt: list[int]
    limit: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """What both programs told.

    Attributes:
        answers: The server's, one a request.
        server: The server's counters after all of them.
        texts: llama-cpp-python's, one a request.
        detokenized: The text of each answer's tokens, for comparison.
        spans: Ours, one a request.
        here: Our counters after all of them.
    """

    answers: list[Answer]
    server: Counters
    texts: list[str]
    detokenized: list[str]
    spans: list[ReadableSpan]
    here: Counters


def load(path: Path, **options: Any) -> Any:
    """A model on one thread."""
    return llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, verbose=False, **options)


def ask_both(files: Files, k: int, requests: Sequence[Request], folder: Path) -> Told:
    """Put the requests to a new server and, instrumented, to a new Llama; nothing is reused from one to the next."""
    with running(files.target, files.draft, k, n_ctx=CONTEXT, log=folder / "llama-server.log") as server:
        answers = [server.complete(each.prompt, each.limit, each.stop) for each in requests]
        counters = server.counters()
    threads = {"n_threads": 1, "n_threads_batch": 1}
    with ModelDraft(files.draft, files.target, num_pred_tokens=k, n_ctx=CONTEXT, **threads) as draft:
        llama = load(files.target, draft_model=draft, logits_all=True)
        texts = []
        with capture() as telemetry:
            for each in requests:
                llama.reset()
                options = {"max_tokens": each.limit, "temperature": 0, "stop": list(each.stop)}
                texts.append(llama.create_completion(each.prompt, **options)["choices"][0]["text"])
            spans, here = list(telemetry.spans()), counters_here(telemetry)
        said = [llama.detokenize(each.tokens).decode() for each in answers]
        llama.close()
    return Told(answers, counters, texts, said, spans, here)


def counters_here(telemetry: Telemetry) -> Counters:
    """Our counters in the server's terms."""
    places = {
        int(point.labels[Attr.SPECDECODE_DRAFT_POSITION]): int(point.value)
        for point in telemetry.points(Metrics.SPECDECODE_DRAFT_ACCEPTED_BY_POSITION.name)
    }
    tokens = Metrics.SPECDECODE_DRAFT_TOKENS.name
    return Counters(
        drafts=int(telemetry.total(Metrics.SPECDECODE_VERIFY_PASSES.name)),
        draft_tokens=int(telemetry.total(tokens)),
        accepted_tokens=int(telemetry.total(tokens, outcome="accepted")),
        accepted_by_position=tuple(places[place] for place in sorted(places)),
    )


def counted(steps: Sequence[Step], k: int) -> Counters:
    """The counters that these passes add up to."""
    rounds = [step for step in steps if step.proposed]
    return Counters(
        drafts=len(rounds),
        draft_tokens=sum(step.proposed for step in rounds),
        accepted_tokens=sum(step.accepted for step in rounds),
        accepted_by_position=tuple(sum(step.accepted > place for step in rounds) for place in range(k)),
    )


def on_span(span: ReadableSpan) -> tuple[object, ...]:
    """Rounds, proposed and accepted tokens of a span, and emitted ones."""
    assert span.attributes is not None
    return tuple(
        span.attributes[name]
        for name in (
            Attr.SPECDECODE_VERIFY_PASSES,
            Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS,
            Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS,
            Attr.GEN_AI_USAGE_OUTPUT_TOKENS,
        )
    )


def server_proposal(k: int, left: int) -> int:
    """How many tokens the server drafts where so many are left of the limit.

    llama-server keeps the last token of the limit for the target: a draft is shorter than what is left, and the last
    token by itself comes from a pass without a draft. llama-cpp-python's draft knows of no limit.
    """
    return min(k, left - 1)


def rounds_here(request: Request, answer: Answer, propose: Propose) -> list[Step]:
    """The rounds that we must report, from those that the server reports."""
    rounds: list[Step] = []
    place = 1
    for step in answer.steps:
        # The limit does not shorten a draft here, but a draft that comes to EOS ends with it. The server drafts on.
        proposal = propose(request.prompt + answer.tokens[:place])
        # The server counts what was accepted before it looks for a stop string. What comes after that is not emitted.
        accepted = min(step.accepted, step.emitted)
        place += step.emitted
        # The stream's last token is the target's own to the server: it keeps the limit's last token for it, and counts
        # an EOS inside a draft as such. Here that token counts as accepted where the draft proposed it.
        last = place == len(answer.tokens)
        if last and accepted == step.emitted - 1 and proposal[accepted : accepted + 1] == answer.tokens[-1:]:
            accepted += 1
        rounds.append(Step(len(proposal), accepted, step.emitted))
    return rounds


def check(requests: Sequence[Request], told: Told, k: int, propose: Propose) -> None:
    """Hold each span and all counters against the server's report."""
    assert len(told.spans) == len(requests)
    expected = [rounds_here(*each, propose) for each in zip(requests, told.answers, strict=True)]
    for request, answer, rounds, span in zip(requests, told.answers, expected, told.spans, strict=True):
        here = counted(rounds, k)
        assert on_span(span) == (here.drafts, here.draft_tokens, here.accepted_tokens, len(answer.tokens))
        left = request.limit - 1
        for step in answer.steps:
            assert step.proposed == server_proposal(k, left)
            left -= step.emitted
    for text, said, request in zip(told.texts, told.detokenized, requests, strict=True):
        assert text == (said.partition(request.stop[0])[0] if request.stop else said)
    assert told.server == counted([step for answer in told.answers for step in answer.steps], k)
    assert told.here == counted([step for rounds in expected for step in rounds], k)


def as_files(target: Path, draft: Path, folder: Path) -> Files:
    """The pair converted without loss."""
    return Files(convert(target, folder / "target.gguf", "f32"), convert(draft, folder / "draft.gguf", "f32"))


def up_to_eos(tokens: list[int]) -> list[int]:
    """The tokens up to and with the first EOS."""
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens


def predicted(pair: CyclePair, request: Request, k: int, emitted: int) -> list[Step]:
    """The server's passes for so many emitted tokens, from the pair's arithmetic alone."""
    walk = pair.tokens(request.prompt[-1], emitted + k)
    steps: list[Step] = []
    place = 1
    while place < emitted:
        draft = pair.drafted(walk[place - 1], server_proposal(k, request.limit - place))
        agrees = [ours == theirs for ours, theirs in zip(draft, walk[place:], strict=False)]
        accepted = agrees.index(False) if False in agrees else len(agrees)
        if EOS in draft[:accepted] and draft.index(EOS) + 1 < len(draft):
            accepted = draft.index(EOS)
        steps.append(Step(len(draft), accepted, min(accepted + 1, emitted - place)))
        place += accepted + 1
    return steps


PAIRS: dict[str, dict[str, Any]] = {
    "default": {},
    "always": {"agreement": 1.0},
    "never": {"agreement": 0.0},
    "eos": {"agreement": 0.9, "eos_after": 7},
    "unseen-eos": {"agreement": 0.9, "eos_after": 7, "eos_agrees": False},
}


@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize("name", PAIRS)
def test_both_programs_count_what_is_known_beforehand(name: str, k: int, tmp_path: Path) -> None:
    """On the cycle pair the server's every round, and by the rules ours, follow from arithmetic."""
    pair = build(tmp_path, **PAIRS[name])
    prompts = ([pair.chat_end], [300, 5, 400], [70, 281])
    requests = [Request(prompt, limit) for prompt in prompts for limit in (1, 2, 3, 5, 9, 40)]
    told = ask_both(as_files(pair.target, pair.draft, tmp_path), k, requests, tmp_path)
    for request, answer in zip(requests, told.answers, strict=True):
        assert answer.tokens == pair.tokens(request.prompt[-1], request.limit, until_eos=True)
        assert answer.steps == predicted(pair, request, k, len(answer.tokens))
    check(requests, told, k, lambda tokens: up_to_eos(pair.drafted(tokens[-1], k)))


@pytest.mark.parametrize("k", LENGTHS)
def test_a_stop_string_anywhere_in_a_round_is_counted_by_its_rule(k: int, tmp_path: Path) -> None:
    """Each of the first words is the stop string once, so that every place of a round is met."""
    pair = build(tmp_path, agreement=0.9)
    files = as_files(pair.target, pair.draft, tmp_path)
    tokens = pair.tokens(pair.chat_end, 3 * k)
    llama = load(files.target)
    words = [llama.detokenize([token]).decode() for token in tokens]
    llama.close()
    requests = [Request([pair.chat_end], 50, (word,)) for word in words]
    told = ask_both(files, k, requests, tmp_path)
    assert all(answer.stop == "word" for answer in told.answers)
    check(requests, told, k, lambda tokens: up_to_eos(pair.drafted(tokens[-1], k)))


@pytest.mark.parametrize("k", LENGTHS)
def test_without_an_end_inside_a_draft_all_numbers_are_the_same(k: int, tmp_path: Path) -> None:
    """No rule is needed where the limit falls behind the bonus token of a whole accepted draft."""
    pair = build(tmp_path, agreement=0.8)
    long = Request([pair.chat_end], 120)
    steps = predicted(pair, long, k, long.limit)
    limits = [1 + sum(step.emitted for step in steps[: at + 1]) for at, step in enumerate(steps) if step.accepted == k]
    assert limits
    requests = [Request(long.prompt, limit) for limit in limits]
    told = ask_both(as_files(pair.target, pair.draft, tmp_path), k, requests, tmp_path)
    assert told.here == told.server
    for answer, span in zip(told.answers, told.spans, strict=True):
        server = counted(answer.steps, k)
        assert on_span(span) == (server.drafts, server.draft_tokens, server.accepted_tokens, len(answer.tokens))


@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize("draft", ["draft", "draft-kd"])
def test_a_trained_pair_is_counted_as_the_server_counts_it(draft: ModelName, k: int, tmp_path: Path) -> None:
    """All twelve prompts of the shipped pair, cut at several limits and, where it comes, at EOS."""
    files = as_files(model_path("target"), model_path(draft), tmp_path)
    alone = load(files.draft)
    chats = (f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n" for prompt in PROMPTS)
    prompts = [alone.tokenize(chat.encode(), add_bos=False, special=True) for chat in chats]
    requests = [Request(prompt, limit) for prompt in prompts for limit in (33, 40, 120)]
    told = ask_both(files, k, requests, tmp_path)
    assert {answer.stop for answer in told.answers} == {"limit", "eos"}
    check(requests, told, k, partial(greedy, alone, k=k))
    alone.close()


def greedy(llama: Any, tokens: list[int], *, k: int) -> list[int]:
    """At most `k` tokens from an empty cache, up to EOS."""
    llama.reset()
    following = llama.generate(tokens, temp=0.0, repeat_penalty=1.0)
    return up_to_eos([token for token, _ in zip(following, range(k), strict=False)])
