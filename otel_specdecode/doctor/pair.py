"""Hazards that can be foreseen for a target and its draft from their files and a few settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from otel_specdecode.doctor.checks import Check, Status
from otel_specdecode.doctor.daemons import side_by_side
from otel_specdecode.doctor.host import shown_bytes
from otel_specdecode.doctor.models import Model, ModelError, find_model, read_model
from otel_specdecode.doctor.texts import one_line
from otel_specdecode.engines.llama_cpp.engine import MOST_VOCABULARY_DIFFERENCE
from otel_specdecode.host.readers import reader_for
from otel_specdecode.identity.gguf import FIRST_COMPARED_ID, read_tokens
from otel_specdecode.thresholds import thresholds

_DEFAULT_N_CTX = _DEFAULT_N_BATCH = 512
_CONTEXT_MULTIPLE = 256

_UNFORESEEN = {
    "mlx": "processors_with_draft, cache_reuse_short, nothing_proposed and all_rejected show only in a run",
    "gguf": (
        "processors_with_draft, nothing_proposed and all_rejected show only in a run; scores_overflow and "
        "logits_not_kept do not arise if the target is loaded with logits_all=True"
    ),
}

Finds = Callable[[str], Model]
Tokens = Callable[[Model], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be run.

    Attributes:
        model: The target, as the user calls it.
        draft: Its draft, if there is one.
        n_ctx: Context of the target, llama.cpp.
        n_batch: Batch of the target, llama.cpp.
        draft_length: Most tokens of a proposal.
    """

    model: str
    draft: str | None = None
    n_ctx: int | None = None
    n_batch: int | None = None
    draft_length: int | None = None


@dataclass(frozen=True, slots=True)
class Hazard:
    """A foreseen hazard: its id in the registry, whether the run breaks, cause and fix."""

    id: str
    status: Status
    cause: str
    fix: str


def find(called: str) -> Model:
    """Find and read a model.

    Raises:
        ModelError: It is not here or cannot be read.
    """
    return read_model(find_model(called))


def memory_limit() -> int | None:
    """Return the bytes of memory that this process may use at most."""
    return reader_for().read().memory_limit.value


def tokens_of(model: Model) -> Sequence[bytes]:
    """Return the vocabulary of a GGUF file."""
    return read_tokens(model.place.path)


def pair_checks(
    question: Question,
    finds: Finds = find,
    limit: Callable[[], int | None] = memory_limit,
    tokens: Tokens = tokens_of,
) -> list[Check]:
    """Return what the models are, which hazards can be foreseen for them, and which cannot."""
    wanted = {"target": question.model} | ({} if question.draft is None else {"draft": question.draft})
    found = dict(zip(wanted, side_by_side(lambda called: _found(finds, called), wanted.values()), strict=True))
    checks = [_model_check(role, each) for role, each in found.items()]
    models = [each for each in found.values() if isinstance(each, Model)]
    if len(models) != len(found):
        return checks
    target, draft = models[0], models[1] if len(models) == 2 else None
    if draft is not None and draft.place.format != target.place.format:
        detail = "the target and the draft are for two engines: one is a GGUF file, the other an MLX folder"
        return [*checks, Check("pair.format", "formats", "error", detail, "take both for the same engine")]
    hazards = list(foreseen(question, target, draft, tokens))
    checks += [
        Check(f"pair.hazard.{each.id}", each.id, each.status, each.cause, each.fix, {"hazard": each.id})
        for each in hazards
    ]
    if not hazards:
        checks.append(Check("pair.hazards", "hazards", "ok", "none foreseen"))
    return [*checks, _unforeseen_check(target), _memory_check(models, limit())]


def foreseen(question: Question, target: Model, draft: Model | None, tokens: Tokens = tokens_of) -> Iterator[Hazard]:
    """Yield the hazards of a target and its draft, both for one engine."""
    if target.keeps_state:
        yield Hazard(
            "recurrent_target",
            "error",
            "the target keeps a recurrent state, which cannot be rewound, so the first rejected token breaks the run",
            "run it without a draft, or take a target of attention layers alone",
        )
    if target.place.format == "mlx":
        yield from _mlx_hazards(target, draft)
    else:
        yield from _llama_cpp_hazards(question)
    if draft is not None and draft.keeps_state:
        yield Hazard(
            "draft_not_trimmable",
            "error" if draft.place.format == "gguf" else "warn",
            "the draft keeps a recurrent state, which cannot drop rejected tokens, so it goes on from a wrong context",
            "take a draft of attention layers alone",
        )
    if draft is not None and (difference := vocabulary_difference(target, draft, tokens)):
        yield Hazard(
            "vocab_mismatch",
            "error",
            f"proposals would mean other tokens: {difference}",
            "take a draft of the target's own family, with the same tokenizer",
        )


def _mlx_hazards(target: Model, draft: Model | None) -> Iterator[Hazard]:
    if target.sliding_window is not None:
        yield Hazard(
            "sliding_window_exceeded",
            "warn",
            f"past {target.sliding_window} tokens of prompt and output the target's cache cannot be rewound, and the "
            "output can differ from a run without a draft",
            f"speculate only where prompt and output stay below {target.sliding_window} tokens",
        )
    if draft is not None and draft.sliding_window is not None:
        yield Hazard(
            "draft_not_trimmable",
            "warn",
            f"past {draft.sliding_window} tokens of prompt and output the draft's cache cannot drop rejected tokens, "
            "so it goes on from a wrong context",
            "take a draft without a sliding window, or keep prompt and output below it",
        )


def _llama_cpp_hazards(question: Question) -> Iterator[Hazard]:
    n_ctx = _DEFAULT_N_CTX if question.n_ctx is None else question.n_ctx
    n_batch = min(_DEFAULT_N_BATCH if question.n_batch is None else question.n_batch, n_ctx)
    if n_ctx % _CONTEXT_MULTIPLE:
        padded = -(-n_ctx // _CONTEXT_MULTIPLE) * _CONTEXT_MULTIPLE
        yield Hazard(
            "context_not_padded",
            "warn",
            f"llama.cpp pads n_ctx={n_ctx} to {padded}, llama-cpp-python's own array stays shorter, and a speculative "
            "run raises near the end",
            f"n_ctx={padded}",
        )
    if question.draft_length is not None and question.draft_length >= n_batch:
        yield Hazard(
            "draft_exceeds_batch",
            "error",
            f"{question.draft_length} proposed tokens and the one before them do not fit in n_batch={n_batch}, and "
            "llama.cpp ends the process",
            f"propose at most {n_batch - 1} tokens, or load the target with a larger n_batch",
        )


def vocabulary_difference(target: Model, draft: Model, tokens: Tokens = tokens_of) -> str:
    """Return how two vocabularies differ, as far as it matters to their engine; empty if they do not."""
    sizes = target.tokenizer.vocabulary_size, draft.tokenizer.vocabulary_size
    if None in sizes:
        return ""
    if target.place.format == "gguf":
        return _gguf_difference(target, draft, tokens)
    if sizes[0] != sizes[1]:
        return f"the target knows {sizes[0]} tokens, the draft {sizes[1]}"
    digests = target.tokenizer.vocabulary_sha256, draft.tokenizer.vocabulary_sha256
    if None not in digests and digests[0] != digests[1]:
        return "both know as many tokens, but not the same ones"
    return ""


def _gguf_difference(target: Model, draft: Model, tokens: Tokens) -> str:
    """Compare as llama.cpp's own speculative decoding does: kinds, sizes nearly, texts of what both have."""
    if target.tokenizer.kind != draft.tokenizer.kind:
        return f"the target's tokenizer is of kind {target.tokenizer.kind}, the draft's of kind {draft.tokenizer.kind}"
    ours, theirs = target.tokenizer.vocabulary_size or 0, draft.tokenizer.vocabulary_size or 0
    if abs(ours - theirs) > MOST_VOCABULARY_DIFFERENCE:
        return f"the target knows {ours} tokens, the draft {theirs}"
    if target.tokenizer.vocabulary_sha256 and target.tokenizer.vocabulary_sha256 == draft.tokenizer.vocabulary_sha256:
        return ""
    pairs = zip_longest(tokens(target), tokens(draft))
    for token, (one, other) in enumerate(pairs):
        if token >= FIRST_COMPARED_ID and None not in (one, other) and one != other:
            return f"token {token} has another text in each"
    return ""


def _found(finds: Finds, called: str) -> Model | ModelError:
    try:
        return finds(called)
    except ModelError as error:
        return error
    except Exception as error:  # a model that nobody foresaw is one that cannot be read, too
        return ModelError(f"it cannot be read ({type(error).__name__})", "download it again")


def _model_check(role: str, model: Model | ModelError) -> Check:
    if isinstance(model, ModelError):
        return Check(f"pair.{role}", role, "error", str(model), model.fix)
    size = shown_bytes(model.size_bytes) if model.size_bytes else None
    known = (model.architecture, model.quantization, size, _vocabulary(model))
    detail = one_line(f"{model.name}: {', '.join(part for part in known if part)}")
    facts = {
        "name": model.name,
        "format": model.place.format,
        "architecture": model.architecture,
        "quantization": model.quantization,
        "size_bytes": model.size_bytes,
        "vocabulary_size": model.tokenizer.vocabulary_size,
        "context_length": model.context_length,
        "sliding_window": model.sliding_window,
        "keeps_state": model.keeps_state,
    }
    if model.why_unknown:
        return Check(
            f"pair.{role}", role, "warn", f"{detail}. Its caches are not known: {model.why_unknown}", "", facts
        )
    return Check(f"pair.{role}", role, "ok", detail, facts=facts)


def _vocabulary(model: Model) -> str | None:
    size = model.tokenizer.vocabulary_size
    return f"{size} tokens" if size else None


def _unforeseen_check(target: Model) -> Check:
    detail = _UNFORESEEN[target.place.format]
    return Check("pair.unforeseen", "not to be foreseen", "unknown", detail)


def _memory_check(models: Sequence[Model], limit: int | None) -> Check:
    sizes = [model.size_bytes for model in models]
    if not limit or None in sizes:
        return Check("pair.memory", "memory", "unknown", "the sizes of the weights or of the memory are not known")
    weights = sum(size for size in sizes if size is not None)
    share = weights / limit
    told = f"the weights take {shown_bytes(weights)} of {shown_bytes(limit)}, {share:.0%}; caches come on top"
    facts = {"weights": weights, "limit": limit, "share": round(share, 4)}
    most = thresholds()["memory"]["share_of_physical"]
    if share > most:
        fix = f"stay below {most:.0%}: take smaller or more strongly quantised models"
        return Check("pair.memory", "memory", "warn", told, fix, facts)
    return Check("pair.memory", "memory", "ok", told, facts=facts)
