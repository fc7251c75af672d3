"""A mix of prompts as long as those that a service had, out of its exported spans. Reads lengths, and no content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from otel_specdecode.acceptance.input_files import json_of
from otel_specdecode.acceptance.material import estimated_tokens, material
from otel_specdecode.acceptance.prompt_files import PromptError
from otel_specdecode.acceptance.prompt_shape import MOST_TOKENS
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.generation.judgement import context_tier
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.user_files import StrPath, UnusableError, check_file, told_line

BINS: Final = 24

_OPERATIONS: Final = ("chat", "text_completion")
_REQUEST: Final = "Tell me a story about what follows, and go on for as long as you can.\n\n"
_READ: Final = frozenset(
    {
        Attr.GEN_AI_OPERATION_NAME,
        Attr.GEN_AI_USAGE_INPUT_TOKENS,
        Attr.GEN_AI_USAGE_OUTPUT_TOKENS,
        Attr.SPECDECODE_COHORT,
        Attr.SPECDECODE_BATCH_SIZE,
        Attr.ERROR_TYPE,
    }
)
"""The attributes that are looked at; all others are let go of as they are read."""


class Length(NamedTuple):
    """How long a request was.

    Attributes:
        operation: `chat` or `text_completion`.
        input: Tokens of its prompt.
        output: Tokens of its answer.
    """

    operation: str
    input: int
    output: int


def prompts_of_spans(paths: Sequence[StrPath], *, bins: int = BINS, seed: int = 1) -> tuple[Prompt, ...]:
    """Return prompts as long, and with answers as long, as requests were.

    Requests alike in length are put together: each operation's are parted into groups of about one size by the input,
    and each of these by the output. A prompt stands for a group: as long as the median of it, and of the weight that
    the group has requests. Its text is made up; how many tokens it has is for the engine to say.

    Args:
        paths: OTLP JSON lines, as `otel-specdecode demo` and the collector's file exporter write them.
        bins: The most prompts there may be, at least 2.
        seed: Of the texts.

    Raises:
        PromptError: A file cannot be read, a line is no OTLP JSON, or no request is in them.
    """
    lengths = read_lengths(paths)
    groups = [group for part in _by_operation(lengths, bins) for group in _grouped(*part)]
    taken: Counter[str] = Counter()
    prompts: list[Prompt] = []
    for place, group in enumerate(groups):
        prompt = _prompt(group, f"{seed}-{place}")
        taken[prompt.id] += 1
        prompts.append(replace(prompt, id=f"{prompt.id}-{taken[prompt.id]}"))
    return tuple(prompts)


def read_lengths(paths: Sequence[StrPath]) -> list[Length]:
    """Return how long the ordinary requests in files of spans were: cohort `normal`, ended without an error.

    A last line without an end may be one that is still being written, and is passed over if it cannot be read.

    Raises:
        PromptError: As prompts_of_spans().
    """
    told: list[str] = []
    found: list[Length] = []
    for path in paths:
        try:
            check_file(path, "file of spans")
            found += _read_file(path, told)
        except UnusableError as error:
            told.append(told_line(path, 1, str(error)))
        except OSError as error:
            told.append(told_line(path, 1, f"the file cannot be read: {error.strerror}"))
    if not told and not found:
        needed = f"cohort normal, with {Attr.GEN_AI_USAGE_INPUT_TOKENS} and {Attr.GEN_AI_USAGE_OUTPUT_TOKENS}"
        told += (told_line(path, 1, f"no span of a request ({needed}) is in what was named") for path in paths[:1])
    if told:
        raise PromptError(told)
    return found


def _read_file(path: StrPath, told: list[str]) -> list[Length]:
    found: list[Length] = []
    with open(path, "rb") as file:
        for line, data in enumerate(file, 1):
            if not data.strip():
                continue
            try:
                content = json_of(data)
                if not isinstance(content, dict) or not _SIGNALS & content.keys():
                    raise UnusableError("this is no export request of OTLP JSON")
                found += (length for span in _spans(content) if (length := _length(span)) is not None)
            except UnusableError as error:
                if data.endswith(b"\n"):
                    told.append(told_line(path, line, str(error)))
    return found


_SIGNALS: Final = frozenset({"resourceSpans", "resourceMetrics", "resourceLogs"})


def _spans(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in _objects(content, "resourceSpans"):
        for scope in _objects(resource, "scopeSpans"):
            yield from _objects(scope, "spans")


def _objects(content: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    values = content.get(key, [])
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise UnusableError(f"this is no OTLP JSON: {key} must be a list of objects")
    yield from values


def _length(span: dict[str, Any]) -> Length | None:
    """Return how long a request was, None if the span is of nothing that would be asked again."""
    attributes = {each["key"]: each.get("value") for each in _objects(span, "attributes") if each.get("key") in _READ}
    operation = _string(attributes.get(Attr.GEN_AI_OPERATION_NAME))
    if operation not in _OPERATIONS or _string(attributes.get(Attr.SPECDECODE_COHORT)) != "normal":
        return None
    if Attr.ERROR_TYPE in attributes or Attr.SPECDECODE_BATCH_SIZE in attributes:
        return None  # the latter holds what its prompts have spans of their own for
    tokens = [_count(attributes.get(key)) for key in (Attr.GEN_AI_USAGE_INPUT_TOKENS, Attr.GEN_AI_USAGE_OUTPUT_TOKENS)]
    return Length(operation, *tokens) if all(0 < each <= MOST_TOKENS for each in tokens) else None


def _string(value: object) -> str:
    return str(value.get("stringValue", "")) if isinstance(value, dict) else ""


def _count(value: object) -> int:
    """Return an integer of OTLP JSON, which is a text or a number; 0 for anything else."""
    number = value.get("intValue") if isinstance(value, dict) else None
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 20:
        return int(number)
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _by_operation(lengths: Sequence[Length], bins: int) -> Iterator[tuple[list[Length], int]]:
    """Yield the requests of each operation, with as many bins as is their share, at least one."""
    counts = Counter(length.operation for length in lengths)
    for operation in sorted(counts):
        others = len(counts) - 1
        share = round(bins * counts[operation] / len(lengths))
        yield [each for each in lengths if each.operation == operation], max(1, min(share, bins - others))


def _grouped(lengths: Sequence[Length], bins: int) -> list[list[Length]]:
    """Return requests in at most so many groups: parted by input, and each part by output."""
    parts = max(1, round(bins**0.5))
    groups = []
    for number, part in enumerate(_quantiles(sorted(lengths, key=lambda each: (each.input, each.output)), parts)):
        inner = bins * (number + 1) // parts - bins * number // parts
        groups += _quantiles(sorted(part, key=lambda each: (each.output, each.input)), inner)
    return groups


def _quantiles(ordered: Sequence[Length], parts: int) -> list[list[Length]]:
    """Return a sorted list in at most so many parts of about one size, none empty."""
    edges = [round(len(ordered) * number / parts) for number in range(parts + 1)]
    return [list(ordered[low:high]) for low, high in pairwise(edges) if low < high]


def _prompt(group: Sequence[Length], seed: str) -> Prompt:
    tokens = _middle([each.input for each in group])
    output = _middle([each.output for each in group])
    asked = _REQUEST if tokens > 2 * estimated_tokens(_REQUEST) else ""
    text = asked + material("prose", tokens - estimated_tokens(asked), seed)
    chat = group[0].operation == "chat"
    return Prompt(
        id=f"{group[0].operation}-in{tokens}-out{output}",
        text=None if chat else text,
        messages=({"role": "user", "content": text},) if chat else None,
        tier=context_tier(tokens),
        max_tokens=output,
        weight=float(len(group)),
    )


def _middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]
