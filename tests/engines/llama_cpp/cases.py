"""Random runs of every kind: what drafts, how it is called, how it ends, and what the KV cache holds beforehand."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from otel_specdecode.tiny_pair.cycle import CyclePair
from otel_specdecode.tiny_pair.folders import END_OF_TURN
from tests.engines.llama_cpp.conftest import Pair
from tests.engines.llama_cpp.ground_truth import (
    Completing,
    Generating,
    Judged,
    Log,
    Lookup,
    Scripted,
    SecondModel,
    Truth,
    llama_cpp,
    truth_of,
    watched_engine,
)

EOS_AFTER = 14
"""Words after a chat prompt until EOS."""
MOST = 40
"""Tokens after which a run ends in any case."""
CHAT = [{"role": "user", "content": "hi"}]
CHAT_TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"

_COMPLETION = ("limit", "word", "eos", "criterion", "context")
ENDINGS = {
    "generate": ("closed", "eos", "criterion"),
    "create_completion": _COMPLETION,
    "__call__": _COMPLETION,
    "create_completion, streamed": (*_COMPLETION, "closed"),
    "create_chat_completion": ("limit", "word", "eos"),
    "create_chat_completion, streamed": ("limit", "word", "eos", "closed"),
}
METHODS = {
    "none": "none",
    "lookup": "prompt_lookup",
    "scripted": "custom",
    "generating": "draft_model",
    "completing": "draft_model",
    "second model": "draft_model",
}
_TELL_K = ("lookup", "second model")
_EARLIER = ("nothing", "nothing", "a part of it", "the same", "restored", "continued")
_FIRST_WORD = 259
_WORDS = range(300, 500)
_ANYTHING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Sampling that leaves every token in, bytes of no character too."""


@dataclass(frozen=True)
class Case:
    """One random run.

    Attributes:
        seed: Of what is drawn while it runs.
        prompt: Token ids.
        entry: The function that is called.
        ending: How it ends.
        limit: Tokens, or chunks where a stream is closed, after which it does.
        draft: What drafts.
        k: Draft length.
        declared: Whether the draft tells it.
        rate: How often a scripted draft is right.
        ngram: Of prompt lookup.
        temperature: Of sampling.
        narrow: Whether a batch holds 16 tokens and the context 256, else 512 and 1,024.
        earlier: What the KV cache holds of an earlier call.
    """

    seed: int
    prompt: tuple[int, ...]
    entry: str
    ending: str
    limit: int
    draft: str
    k: int
    declared: bool
    rate: float
    ngram: int
    temperature: float
    narrow: bool
    earlier: str

    @classmethod
    def random(cls, seed: int, bench: Bench) -> Case:
        """Draw a case."""
        draw = random.Random(seed)
        entry = draw.choice(tuple(ENDINGS))
        ending = draw.choice(ENDINGS[entry])
        limit = draw.randint(1, 24)
        narrow = ending == "context" or draw.random() < 0.5
        length = draw.randint(236, 254) if ending == "context" else draw.choice((1, 2, 3, 9, 17, 40, 70))
        prompt = bench.chat if "chat" in entry else _prompt(draw, bench.truth, length, limit if ending == "eos" else 0)
        draft = draw.choice(tuple(METHODS))
        return cls(
            seed=seed,
            prompt=prompt,
            entry=entry,
            ending=ending,
            limit=limit,
            draft=draft,
            k=draw.choice((0, 1, 2, 3, 4, 6, 8) if narrow or draft != "lookup" else (5, 20)),
            declared=draft in _TELL_K or draw.random() < 0.6,
            rate=draw.choice((0.0, 0.5, 0.8, 1.0)),
            ngram=draw.randint(1, 3),
            temperature=draw.choice((0.0, 0.0, 1.2, 3.0)),
            narrow=narrow,
            earlier=draw.choice(_EARLIER),
        )

    @property
    def speculates(self) -> bool:
        """Whether a draft is there that may propose something."""
        return self.draft != "none" and (self.k > 0 or not self.declared)

    @property
    def continued(self) -> bool:
        """Whether it goes on where an earlier call stopped."""
        return self.entry == "generate" and self.earlier == "continued"


def _prompt(draw: random.Random, truth: CyclePair, length: int, eos_in: int) -> tuple[int, ...]:
    """Draw a prompt: after it EOS is the token of this number, or for 0 far away. Long ones say already what comes."""
    far = [word for word in _WORDS if END_OF_TURN not in truth.tokens(word, MOST)]
    last = word_before_eos(truth, eos_in) if eos_in else draw.choice(far)
    said = [last, *truth.tokens(last, draw.randint(1, 6)), draw.choice(_WORDS)] if length >= 9 else []
    filler = [draw.choice(_WORDS) for _ in range(length - len(said) - 1)]
    return (*filler, *said, last)


def word_before_eos(truth: CyclePair, number: int) -> int:
    """Return the word after which EOS is the token of this number, from 1 on."""
    word = END_OF_TURN
    for _ in range(number):
        word = truth.successor.index(word, _FIRST_WORD)
    return word


class Bench:
    """The models, loaded once for all cases."""

    def __init__(self, pair: Pair) -> None:
        """Load the draft; targets are loaded as they are needed."""
        assert pair.truth is not None
        self.truth = pair.truth
        self.draft = pair.draft_llama(n_batch=16)
        self.eog = frozenset(token for token in range(len(self.truth.successor)) if _ends(self.draft, token))
        self.chat: tuple[int, ...] = tuple(self.draft.tokenize(CHAT_TEXT.encode(), add_bos=False, special=True))
        self._pair = pair
        self._targets: dict[tuple[bool, bool], Any] = {}

    def fresh(self, *, narrow: bool, logits_all: bool) -> Any:
        """Return a target as if new, and make the draft so."""
        key = narrow, logits_all
        if key not in self._targets:
            size = {"n_ctx": 256, "n_batch": 16} if narrow else {"n_ctx": 1024, "n_batch": 512}
            self._targets[key] = self._pair.llama(logits_all=logits_all, **size)
        self._targets[key].reset()
        self.draft.reset()
        return self._targets[key]

    def draft_of(self, case: Case, llama: Any) -> Any:
        """Return what drafts for a target."""
        if case.draft == "none":
            return None
        if case.draft == "lookup":
            return Lookup(case.ngram, case.k)
        if case.draft == "second model":
            return SecondModel(self.draft, llama, num_pred_tokens=case.k)
        if case.draft == "scripted":
            return Scripted(self._script(case), case.k, declared=case.declared)
        kind = Generating if case.draft == "generating" else Completing
        return kind(self.draft, case.k, declared=case.declared)

    def _script(self, case: Case) -> Any:
        draw = random.Random(case.seed)

        def propose(input_ids: Any) -> list[int]:
            right = self.truth.tokens(int(input_ids[-1]), draw.randint(0, case.k))
            return [token if draw.random() < case.rate else draw.choice(_WORDS) for token in right]

        return propose

    def close(self) -> None:
        """Free the models."""
        for llama in (self.draft, *self._targets.values()):
            llama.close()


def _ends(llama: Any, token: int) -> bool:
    if hasattr(llama_cpp, "llama_vocab_is_eog"):
        return bool(llama_cpp.llama_vocab_is_eog(llama._model.vocab, token))
    return bool(llama_cpp.llama_token_is_eog(llama._model.model, token))


class Outcome(NamedTuple):
    """What the caller got.

    Attributes:
        reason: Why it ended.
        usage: Of a whole answer.
    """

    reason: str
    usage: dict[str, int] | None = None


class Run(NamedTuple):
    """A run that is over.

    Attributes:
        truth: What it was.
        outcome: What the caller got.
        input_tokens: Tokens of the prompt.
    """

    truth: Truth
    outcome: Outcome
    input_tokens: int


def prepare(case: Case, bench: Bench) -> Any:
    """Return the target, with what an earlier call left in its KV cache."""
    llama, prompt = bench.fresh(narrow=case.narrow, logits_all=case.draft != "none"), case.prompt
    if case.earlier == "nothing":
        return llama
    shared = {"a part of it": len(prompt) // 2, "continued": 0}.get(case.earlier, len(prompt))
    loop = llama.generate([*prompt[:shared], *([301, 302] if shared < len(prompt) else [])], temp=0.0)
    list(islice(loop, 1 + case.seed % 2))
    loop.close()
    if case.earlier == "restored":
        state = llama.save_state()
        llama.reset()
        llama.load_state(state)
    return llama


def run(case: Case, bench: Bench, llama: Any) -> Run:
    """Run a case on a prepared target."""
    input_tokens = len(case.prompt) + (llama.n_tokens if case.continued else 0)
    llama.draft_model = bench.draft_of(case, llama)
    try:
        with watched_engine() as log:
            if llama.draft_model is not None:
                llama.draft_model.log = log
            outcome = _play(case, bench, llama, _criterion(case, input_tokens, log))
    finally:
        llama.draft_model = None
    return Run(truth_of(log, llama, input_tokens), outcome, input_tokens)


def _criterion(case: Case, input_tokens: int, log: Log) -> dict[str, Any]:
    """Return the option that refuses the token whose number is the limit."""
    if case.ending != "criterion":
        return {}

    def judge(input_ids: Sequence[int], _: Any) -> bool:
        stop = len(input_ids) >= input_tokens + case.limit - 1
        log.append(Judged(stop))
        return stop

    return {"stopping_criteria": llama_cpp.StoppingCriteriaList([judge])}


def _play(case: Case, bench: Bench, llama: Any, options: dict[str, Any]) -> Outcome:
    try:
        return (_loop if case.entry == "generate" else _completion)(case, bench, llama, options)
    except (RuntimeError, ValueError):
        if case.ending != "context":
            raise
        return Outcome("error")  # bytes of no character let the engine go on where the context is full


def _loop(case: Case, bench: Bench, llama: Any, options: dict[str, Any]) -> Outcome:
    llama.set_seed(case.seed)
    loop = llama.generate(case.prompt, temp=case.temperature, reset=not case.continued, **_ANYTHING, **options)
    most = case.limit if case.ending == "closed" else MOST
    for number, token in enumerate(loop, 1):
        ended = token in bench.eog
        if number == most or (ended and case.ending == "eos"):
            loop.close()
            return Outcome("stop" if ended else "closed")
    return Outcome("stop")


def _completion(case: Case, bench: Bench, llama: Any, options: dict[str, Any]) -> Outcome:
    limits = {"limit": case.limit, "context": None}
    options |= {"max_tokens": limits.get(case.ending, MOST), "temperature": case.temperature, "seed": case.seed}
    options |= _ANYTHING
    if case.ending == "word":
        options["stop"] = [llama.detokenize(bench.truth.tokens(case.prompt[-1], case.limit)[-1:]).decode()]
    name, _, streamed = case.entry.partition(", ")
    asked: Iterable[Any] = CHAT if "chat" in name else list(case.prompt)
    answer = getattr(llama, name)(asked, stream=bool(streamed), **options)
    if not streamed:
        return Outcome(answer["choices"][0]["finish_reason"], answer["usage"])
    chunks = list(islice(answer, case.limit if case.ending == "closed" else None))
    answer.close()
    return Outcome(chunks[-1]["choices"][0]["finish_reason"] or "closed")
