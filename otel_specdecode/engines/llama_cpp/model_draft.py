"""A second model as the draft: llama-cpp-python itself only looks drafts up in the prompt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from otel_specdecode.engines.llama_cpp.engine import MOST_VOCABULARY_DIFFERENCE, ends_generation, keeps_state
from otel_specdecode.generation.faults import warn_once
from otel_specdecode.identity.gguf import FIRST_COMPARED_ID

if TYPE_CHECKING:
    # Types are checked without llama-cpp-python too.
    class LlamaDraftModel: ...  # noqa: D101
else:
    from llama_cpp.llama_speculative import LlamaDraftModel

Llama = Any
"""A `llama_cpp.Llama`. Its private parts differ between releases."""

_NO_VOCABULARY = 0
_TOKENIZERS = {1: "SentencePiece", 2: "byte-level BPE", 3: "WordPiece", 4: "Unigram", 5: "RWKV"}
_REMEDY = "Take a draft of the target's own model family, which has the same tokenizer."


class ModelDraft(LlamaDraftModel):
    """Proposes what a smaller model of the same vocabulary would say next.

    It decodes greedily, whatever the target's sampling is, and keeps its own context in step with the target's: what
    both hold is not evaluated again. One object serves one target, and like a `Llama` one thread at a time.

        draft = ModelDraft("qwen3-0.6b.gguf", "qwen3-8b.gguf", n_ctx=4096, num_pred_tokens=4)
        llama = Llama("qwen3-8b.gguf", n_ctx=4096, draft_model=draft, logits_all=True)

    The target needs `logits_all=True`: with a draft alone, llama-cpp-python keeps scores for `n_batch` tokens and
    raises beyond. If a `Llama` that was loaded with neither is given a draft later, llama.cpp ends the process at the
    first proposal. So it does with a proposal that is not shorter than the target's `n_batch`.

    Attributes:
        llama: The draft's `Llama`.
    """

    llama: Llama

    def __init__(
        self,
        model: str | os.PathLike[str] | Llama,
        target: str | os.PathLike[str] | Llama,
        *,
        num_pred_tokens: int = 4,
        n_ctx: int | None = None,
        **llama_options: Any,
    ) -> None:
        """Load the draft, and compare its vocabulary with the target's.

        Args:
            model: The draft's GGUF file; or a `Llama`, which stays the caller's to close.
            target: The target's GGUF file, of which the vocabulary is read; or its `Llama`.
            num_pred_tokens: Most tokens of one proposal.
            n_ctx: Tokens that fit the draft's context; give it the target's, or the draft falls silent before the
                target does. 0 is what the draft was trained with. Without it, that of the target's `Llama`, else
                llama-cpp-python's default, which is 512.
            **llama_options: Further arguments of the draft's `Llama`; `verbose` is False unless given.

        Raises:
            ValueError: The vocabularies differ, the draft cannot take tokens back, or arguments contradict each other.
                Also llama-cpp-python's own, for a file that is missing or no GGUF.
        """
        self.num_pred_tokens = num_pred_tokens
        self._closed = False
        self._owned = not isinstance(model, llama_cpp.Llama)
        if n_ctx is not None:
            llama_options["n_ctx"] = n_ctx
        if isinstance(target, llama_cpp.Llama) and target.ctx is None:
            raise ValueError(f"the target {_file(target)} is closed")
        if self._owned:
            self.llama = _load(model, target, llama_options)
        else:
            _check_loaded(model, target, llama_options)
            self.llama = model
        try:
            self._proposable = _common_ids(self.llama, target)
        except BaseException:
            self.close()
            raise

    @property
    def num_pred_tokens(self) -> int:
        """Most tokens of one proposal; with 0 nothing is proposed. May be set between requests."""
        return self._num_pred_tokens

    @num_pred_tokens.setter
    def num_pred_tokens(self, value: int) -> None:
        if not _is_count(value):
            raise ValueError(f"num_pred_tokens must be an int from 0 on, not {value!r}")
        self._num_pred_tokens = value

    def __call__(self, input_ids: NDArray[np.intc], /, **_: Any) -> NDArray[np.intc]:
        """Return the tokens that the draft puts forward after `input_ids`: as many as fit, up to an end of generation.

        Raises:
            RuntimeError: The draft, or its `Llama`, is closed.
        """
        llama = self.llama
        if self._closed or llama.ctx is None:
            raise RuntimeError("the draft model is closed")
        most = self._room_after(len(input_ids))
        if not most:
            return np.empty(0, dtype=np.intc)
        held = self._held(input_ids)
        new = input_ids[held:]
        if not self._knows(new):
            return np.empty(0, dtype=np.intc)
        llama.n_tokens = held  # eval() drops what the cache holds beyond
        llama.eval(new.tolist())
        tokens = [self._likeliest()]
        while len(tokens) < most and not ends_generation(llama, tokens[-1]):
            llama.eval(tokens[-1:])
            tokens.append(self._likeliest())
        return np.array(tokens, dtype=np.intc)

    def _room_after(self, length: int) -> int:
        """Return how many tokens may be proposed after so many."""
        if not length or not self._num_pred_tokens:
            return 0
        # llama.cpp pads the context, but Llama remembers only as many tokens as it was asked for.
        context = min(int(self.llama.n_ctx()), len(self.llama.input_ids))
        if length >= context:
            warn_once(
                f"{_file(self.llama)} proposes nothing more: the text has outgrown its context of {context} tokens; "
                "give ModelDraft the target's n_ctx"
            )
            return 0
        return min(self._num_pred_tokens, context - length)

    def _held(self, input_ids: NDArray[np.intc]) -> int:
        """Return how many of the tokens the context holds already, leaving one to evaluate for its logits."""
        most = min(self.llama.n_tokens, len(input_ids) - 1)
        differing = np.flatnonzero(self.llama.input_ids[:most] != input_ids[:most])
        return int(differing[0]) if differing.size else int(most)

    def _knows(self, tokens: NDArray[np.intc]) -> bool:
        """Return whether the draft has all these tokens: the engine raises at any other.

        The target may have a few more, and where it was shown an image its ids are arbitrary.
        """
        known = bool(tokens.min() >= 0 and tokens.max() < self.llama.n_vocab())
        if not known:
            warn_once(f"{_file(self.llama)} proposes nothing after a text with tokens that it does not know")
        return known

    def _likeliest(self) -> int:
        logits = llama_cpp.llama_get_logits_ith(self.llama.ctx, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self._proposable,)).argmax())

    def close(self) -> None:
        """Free the draft's model, if it was loaded here. Nothing can be proposed afterwards."""
        if self._owned and not self._closed:
            self.llama.close()
        self._closed = True

    def __enter__(self) -> ModelDraft:  # noqa: PYI034 - typing.Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle with the draft's `Llama`, which loads its file again where it is unpickled."""
        if self._closed:
            raise RuntimeError("the draft model is closed: there is nothing to pickle")
        return self.__dict__


def _load(model: str | os.PathLike[str], target: str | os.PathLike[str] | Llama, options: dict[str, Any]) -> Llama:
    if isinstance(target, llama_cpp.Llama):
        options = {"n_ctx": target.n_ctx(), **options}
    return llama_cpp.Llama(os.fspath(model), **{"verbose": False, **options})


def _check_loaded(model: Llama, target: str | os.PathLike[str] | Llama, options: dict[str, Any]) -> None:
    if options:
        raise ValueError(f"the draft is loaded already, so {', '.join(sorted(options))} would have no effect")
    if model is target:
        raise ValueError("target and draft need a Llama each: one context cannot hold both")


@dataclass(frozen=True)
class _Vocabulary:
    """What two models must have in common: tokenizer, what it adds around a prompt, and the tokens by id."""

    kind: int
    bos: int | None
    eos: int | None
    texts: list[bytes]


def _common_ids(draft: Llama, target: str | os.PathLike[str] | Llama) -> int:
    """Return how many ids, from 0 on, both models know.

    Raises:
        ValueError: The draft cannot serve this target.
    """
    reason = _unfit(draft)
    if reason:
        raise ValueError(f"{_file(draft)} cannot be a draft: {reason}")
    if isinstance(target, llama_cpp.Llama):
        return _common_ids_of(draft, target)
    # Without the weights. The logger's level is the process's, so it stays what the draft's Llama made it.
    vocabulary = llama_cpp.Llama(os.fspath(target), vocab_only=True, n_ctx=64, n_batch=64, verbose=draft.verbose)
    try:
        return _common_ids_of(draft, vocabulary)
    finally:
        vocabulary.close()


def _common_ids_of(draft: Llama, target: Llama) -> int:
    ours, theirs = _vocabulary(draft), _vocabulary(target)
    difference = _difference(ours, theirs)
    if difference:
        names = f"{_file(draft)} cannot draft for {_file(target)}"
        raise ValueError(f"{names}: their vocabularies differ. {difference} {_REMEDY}")
    return min(len(ours.texts), len(theirs.texts))


def _unfit(draft: Llama) -> str | None:
    """Return why a model cannot be a draft for any target."""
    if draft.ctx is None:
        return "it is closed"
    if keeps_state(draft):
        return (
            "it is a recurrent or hybrid model, which cannot take back a rejected token. Take one of attention alone."
        )
    if draft.model_params.vocab_only:
        return "it was loaded without its weights (vocab_only=True)"
    if draft.context_params.embeddings:
        return "it was loaded for embeddings (embedding=True)"
    return None


def _vocabulary(llama: Llama) -> _Vocabulary:
    model = llama._model
    handle = getattr(model, "vocab", model.model)  # in older releases a vocabulary is no object of its own
    kind = llama_cpp.llama_vocab_type(handle)  # LlamaModel.vocab_type() of 0.3.7 asks the wrong object
    if kind == _NO_VOCABULARY:
        raise ValueError(f"{_file(llama)} has no vocabulary")
    text = getattr(llama_cpp, "llama_vocab_get_text", None) or llama_cpp.llama_token_get_text
    return _Vocabulary(
        kind=kind,
        bos=model.token_bos() if model.add_bos_token() else None,
        eos=model.token_eos() if model.add_eos_token() else None,
        texts=[text(handle, token) for token in range(model.n_vocab())],
    )


def _difference(draft: _Vocabulary, target: _Vocabulary) -> str | None:
    """Return in a sentence what makes the draft's tokens others than the target's, None where they are the same."""
    if draft.kind != target.kind:
        kinds = [_TOKENIZERS.get(each.kind, f"of type {each.kind}") for each in (draft, target)]
        return f"The draft's tokenizer is {kinds[0]}, the target's {kinds[1]}."
    for place, added in (("beginning", (draft.bos, target.bos)), ("end", (draft.eos, target.eos))):
        if added[0] != added[1]:
            return f"At the {place} of a text the draft adds {_id(added[0])}, the target {_id(added[1])}."
    sizes = len(draft.texts), len(target.texts)
    if abs(sizes[0] - sizes[1]) > MOST_VOCABULARY_DIFFERENCE:
        return (
            f"The draft has {sizes[0]} tokens, the target {sizes[1]}; they may differ by {MOST_VOCABULARY_DIFFERENCE}."
        )
    for token, (ours, theirs) in enumerate(zip(draft.texts, target.texts, strict=False)):
        if token >= FIRST_COMPARED_ID and ours != theirs:
            return f"Token {token} is {_text(ours)} in the draft and {_text(theirs)} in the target."
    return None


def _id(token: int | None) -> str:
    return "nothing" if token is None else f"token {token}"


def _text(text: bytes) -> str:
    return repr(text.decode(errors="replace"))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _file(llama: Llama) -> str:
    return os.path.basename(str(llama.model_path))
