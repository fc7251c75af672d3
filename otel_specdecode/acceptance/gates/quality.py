"""Measures of what the answers are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from otel_specdecode.acceptance.figures import pairs
from otel_specdecode.acceptance.gates.reading import Case, Evidence, Reading, UnmeasuredError
from otel_specdecode.acceptance.records import Arm, Measured
from otel_specdecode.acceptance.statistics import mean
from otel_specdecode.acceptance.storage import RESULTS

LEAST_EXPECTED = 5
"""Answers that a cell of a chi-square table expects at least; rarer openings are pooled."""

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

    It promises nothing where a hazard was met. Nor with quantised weights: there a pass over several tokens takes other
    sums than one over a single token, so that of two tokens that are nearly as likely the other one can win.
    """
    arm = replace(case.arm, temperature=0.0, top_k=0)
    found = [
        (plain, drafted)
        for plain, drafted in pairs(case.run, arm, case.takes)
        if plain.text_digest is not None and drafted.text_digest is not None
    ]
    if not found:
        raise UnmeasuredError("no greedy answer can be compared with the baseline's")
    reasons = Counter(
        _excuse(case, plain, drafted) for plain, drafted in found if plain.text_digest != drafted.text_digest
    )
    unexplained = float(reasons.pop("", 0))
    told = ", ".join(f"{count} more differ with {reason}" for reason, count in sorted(reasons.items()))
    evidence = Evidence(case.run.head.run_id, RESULTS, len(found), "pairs")
    return Reading(unexplained, unexplained, unexplained, len(found), (evidence,), told)


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


def _excuse(case: Case, plain: Measured, drafted: Measured) -> str:
    """Return why two answers may differ; empty if they may not."""
    hazards = dict.fromkeys((*plain.hazards, *drafted.hazards))
    if hazards:
        return f"hazard {' and '.join(hazards)}"
    kind = quantised(case)
    return f"quantised weights ({kind})" if kind else ""


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
