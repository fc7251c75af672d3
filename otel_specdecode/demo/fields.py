"""The fields that are shown: which, in what order, how many requests make one number, and what each means."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from otel_specdecode import telemetry
from otel_specdecode.demo import measures
from otel_specdecode.demo.runs import Run
from otel_specdecode.telemetry.names import Attr, Metrics

ABSENT = "absent"

Fold = Callable[[Sequence[Run]], float | None]


@dataclass(frozen=True)
class Field:
    """One row.

    Attributes:
        name: The field's name in the telemetry.
        unit: Unit of the shown number, empty for words.
        show: Makes the cell out of a mode's requests.
    """

    name: str
    unit: str
    show: Callable[[Sequence[Run]], str]


def rows() -> list[Field]:
    """Return the rows of the side-by-side table.

    Words are those of any request, peak memory is the greatest, ratios are of the sums, and everything else is the
    mean of a request.
    """
    return [
        *(
            _word(key)
            for key in (
                Attr.GEN_AI_PROVIDER_NAME,
                Attr.SPECDECODE_MODE,
                Attr.SPECDECODE_METHOD,
                Attr.SPECDECODE_DRAFT_MODEL,
            )
        ),
        _mean(Attr.SPECDECODE_DRAFT_MAX_TOKENS, "tokens", 0),
        *(_mean(key, "tokens") for key in (Attr.GEN_AI_USAGE_INPUT_TOKENS, Attr.GEN_AI_USAGE_OUTPUT_TOKENS)),
        *(
            _mean(key, "passes")
            for key in (Attr.SPECDECODE_DECODE_PASSES, Attr.SPECDECODE_VERIFY_PASSES, Attr.SPECDECODE_DRAFT_PASSES)
        ),
        *(
            _mean(key, "tokens")
            for key in (
                Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS,
                Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS,
                Attr.SPECDECODE_DRAFT_REJECTED_TOKENS,
                Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS,
            )
        ),
        _mean(Attr.SPECDECODE_ROLLBACKS, "rollbacks"),
        _number(Attr.SPECDECODE_ROLLBACKS_PER_MINUTE, "per min", measures.rollbacks_per_minute, 0),
        _number(Attr.SPECDECODE_ACCEPT_RATE, "0..1", measures.accept_rate, 2),
        _number(Attr.SPECDECODE_ACCEPTANCE_LENGTH, "tokens", measures.acceptance_length, 2),
        _mean(Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND, "tokens/s"),
        *(
            _milliseconds(key)
            for key in (
                Attr.SPECDECODE_TIME_TO_FIRST_TOKEN,
                Attr.SPECDECODE_PREFILL_DURATION,
                Attr.SPECDECODE_DECODE_DURATION,
                Attr.SPECDECODE_DRAFT_DURATION,
                Attr.SPECDECODE_INTER_TOKEN_LATENCY_P50,
                Attr.SPECDECODE_INTER_TOKEN_LATENCY_P95,
            )
        ),
        _number(Metrics.SPECDECODE_ROUND_DURATION.name, "ms", _mean_round, 2),
        _number(
            Metrics.SPECDECODE_ROUND_DURATION.name, "recorded", lambda runs: measures.recorded_rounds(runs).count, 0
        ),
        _number(
            Attr.SPECDECODE_PROCESS_PEAK_RSS,
            "MiB",
            lambda runs: _mebibytes(measures.highest(runs, Attr.SPECDECODE_PROCESS_PEAK_RSS)),
            0,
        ),
    ]


@cache
def meanings() -> dict[str, str]:
    """Return the registry's text of every span attribute, by its name."""
    registry = json.loads(resources.files(telemetry).joinpath("registry.json").read_text(encoding="utf-8"))
    return {key: attribute["brief"].replace("`", "") for key, attribute in registry["attributes"].items()}


def _word(key: str) -> Field:
    def show(runs: Sequence[Run]) -> str:
        return str(runs[0].taken.attributes.get(key, ABSENT)) if runs else ABSENT

    return Field(key, "", show)


def _number(name: str, unit: str, fold: Fold, digits: int) -> Field:
    def show(runs: Sequence[Run]) -> str:
        number = fold(runs)
        return ABSENT if number is None else f"{number:,.{digits}f}"

    return Field(name, unit, show)


def _mean(key: str, unit: str, digits: int = 1) -> Field:
    return _number(key, unit, lambda runs: measures.mean(runs, key), digits)


def _milliseconds(key: str) -> Field:
    return _number(key, "ms", lambda runs: _thousand(measures.mean(runs, key)), 2)


def _mean_round(runs: Sequence[Run]) -> float | None:
    recorded = measures.recorded_rounds(runs)
    return recorded.total / recorded.count * 1000 if recorded.count else None


def _thousand(number: float | None) -> float | None:
    return None if number is None else number * 1000


def _mebibytes(number: float | None) -> float | None:
    return None if number is None else number / 2**20
