"""Measures of what the answers are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from otel_specdecode.acceptance.figures import pairs
from otel_specdecode.acceptance.gates.reading import Case, Evidence, Instead, Reading, UnmeasuredError
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.statistics import mean
from otel_specdecode.acceptance.storage import RESULTS

LEAST_EXPECTED = 5
"""Answers that a cell of a chi-square table expects at least; rarer openings are pooled."""

CHANGES_OUTPUT = frozenset(
    {"sliding_window_exceeded", "recurrent_target", "cache_reuse_short", "processors_with_draft"}
)
"""Hazards with which an engine's output can differ from the one without a draft. All others cost speed, or raise."""

_FLOATS = re.compile(r"(ALL_|MOSTLY_)?(B?F\d+|b?float\d+)")


def success_difference(case: Case) -> Reading:
    """Return the share of tasks that succeed, less that of the baseline; a prompt is one task, however often it ran."""
    gains: dict[str, list[float]] = defaultdict(list)
    for plain, drafted in pairs(case.run, case.arm, case.takes):
        if plain.check is not None and drafted.check is not None:
            gains[drafted.prompt].append(float(drafted.check) - float(plain.check))
    if not gains:
        raise UnmeasuredError("no prompt that both arms ran has a check")
    return case.reading(mean([float(np.mean(each)) for each in gains.values()]), len(gains), "prompts")


def different_answers(case: Case) -> Reading:
    """Return how many greedy answers differ from the baseline's where the engine promises that they do not.

    It promises nothing where a hazard was met that can change the output. Nor with quantised weights: there a pass over
    several tokens takes other sums than one over a single token, so that of two tokens that are nearly as likely the
    other one can win. No draft can do more than that, so the share of answers that may differ has a bound of its own.
    """
    arm = replace(case.arm, temperature=0.0, top_k=0)
    found = [
        (plain, drafted)
        for plain, drafted in pairs(case.run, arm, case.takes)
        if plain.text_digest is not None and drafted.text_digest is not None
    ]
    if not found:
        raise UnmeasuredError("no greedy answer can be compared with the baseline's")
    excused: Counter[str] = Counter()
    promised = different = 0
    for plain, drafted in found:
        differs = plain.text_digest != drafted.text_digest
        hazards = [each for each in dict.fromkeys((*plain.hazards, *drafted.hazards)) if each in CHANGES_OUTPUT]
        if hazards:
            excused[f"hazard {' and '.join(hazards)}"] += differs
        else:
            promised, different = promised + 1, different + differs
    told = [f"{count} more differ with {reason}" for reason, count in sorted(excused.items()) if count]
    evidence = (Evidence(case.run.head.run_id, RESULTS, len(found), "pairs"),)
    kind, most = quantised(case), case.gate.quantised_difference
    if kind is None or most is None:
        value = float(different)
        return Reading(value, value, value, len(found), evidence, ", ".join(told))
    share = different / promised if promised else 0.0
    if different:
        told.insert(0, f"{different} of {promised} differ with quantised weights ({kind})")
    if share > most:
        told.append("a draft can only change which of two tokens wins that are nearly as likely, never so many answers")
    return Reading(share, share, share, len(found), evidence, ", ".join(told), instead=Instead(most, "share"))


def opening_p_value(case: Case) -> Reading:
    """Return how likely openings that differ at least as much are by chance, if both arms draw from one distribution.

    A chi-square test over the tables of all prompts and temperatures: how often each opening came with a draft, and how
    often without.
    """
    total, freedom, samples = 0.0, 0, 0
    for arm in _sampled(case):
        plain, drafted = (_openings(case, each) for each in (arm.baseline, arm))
        for prompt in plain.keys() & drafted.keys():
            table = _table(plain[prompt], drafted[prompt])
            if table is not None:
                found = stats.chi2_contingency(table, correction=False)
                total, freedom = total + float(found.statistic), freedom + int(found.dof)
                samples += int(table[1].sum())
    if not freedom:
        raise UnmeasuredError("no prompt ran often enough above temperature 0, with a draft and without")
    p = float(stats.chi2.sf(total, freedom))
    evidence = Evidence(case.run.head.run_id, RESULTS, samples, "requests")
    return Reading(p, p, p, samples, (evidence,), f"chi-square {total:.1f} with {freedom} degrees of freedom")


def quantised(case: Case) -> str | None:
    """Return how the target's weights are quantised; None where they are not, or nothing tells."""
    target = case.run.head.manifest.get("target")
    kind = target.get("quantization") if isinstance(target, dict) else None
    return None if not isinstance(kind, str) or _FLOATS.fullmatch(kind) else kind


def _sampled(case: Case) -> Sequence[Arm]:
    """Return the arms above temperature 0 that are else as the arm that is judged."""
    arm = case.arm
    return [
        each
        for each in case.run.head.arms
        if each.temperature > 0 and replace(each, temperature=arm.temperature, top_k=arm.top_k) == arm
    ]


def _openings(case: Case, arm: Arm) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for each in case.run.of(arm):
        if each.opening_digest is not None and case.takes(each):
            found[each.prompt][each.opening_digest] += 1
    return found


def _table(plain: Counter[str], drafted: Counter[str]) -> np.ndarray | None:
    """Return two rows of counts by opening, the rare ones pooled; None if that leaves nothing to compare."""
    sizes = np.asarray([plain.total(), drafted.total()], dtype=float)
    columns = sorted(((plain[each], drafted[each]) for each in plain | drafted), key=sum)
    least = LEAST_EXPECTED * sizes.sum() / sizes.min()
    pooled = np.zeros(2)
    while columns and (sum(columns[0]) < least or 0 < pooled.sum() < least):
        pooled += columns.pop(0)
    table = [*columns, pooled] if pooled.sum() else columns
    return np.asarray(table, dtype=float).T if len(table) > 1 else None
