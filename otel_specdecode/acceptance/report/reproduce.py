"""Commands that make a run and its report again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from otel_specdecode.acceptance.records import Run
from otel_specdecode.acceptance.report.escaping import printable

COMMAND = "command"
"""The option of a run's head that holds its command line."""

_LONGEST = 2000
_NUMBERS = (
    ("--repeats", "repeats", 1),
    ("--minutes", "seconds", 1 / 60),
    ("--baseline-minutes", "baseline_seconds", 1 / 60),
    ("--warm-up", "warm_up", 1),
    ("--cool-down", "cool_down", 1),
    ("--stop-below", "stop_below", 1),
    ("--tune-above", "tune_above", 1),
    ("--seed", "seed", 1),
)


def commands(run: Run, soak: Run | None, policy: str | None) -> tuple[str, ...]:
    """Return the commands that make such a report; names stand where a path is not known."""
    runs = [each for each in (run, soak) if each is not None]
    judged = ["--policy", policy] if policy else []
    soaked = ["--soak", soak.head.run_id] if soak else []
    report = ["otel-specdecode", "report", run.head.run_id, *soaked, *judged, "-o", "report.html"]
    return (*(_made(each) for each in runs), _line(report))


def _made(run: Run) -> str:
    kept = run.head.options.get(COMMAND)
    if isinstance(kept, str) and kept:
        return printable(kept, _LONGEST)
    if isinstance(kept, Sequence) and kept:
        return _line([str(each) for each in kept])
    return _line(["otel-specdecode", run.head.kind, *_arguments(run)])


def _arguments(run: Run) -> list[str]:
    """Return what the head tells of a command whose own words were not kept."""
    manifest, options = run.head.manifest, run.head.options
    drafts = manifest.get("drafts")
    found = ["--engine", run.head.engine, "--model", _name(manifest.get("target"))]
    for label, draft in drafts.items() if isinstance(drafts, Mapping) else ():
        name = _name(draft.get("model")) if isinstance(draft, Mapping) else "MODEL"
        found += ["--draft", name if label == "draft" else f"{label}={name}"]
    arms = run.head.arms
    for option, values in (
        ("--draft-tokens", {arm.draft_length for arm in arms} - {0}),
        ("--temperature", {arm.temperature for arm in arms} - {0}),
        ("--top-k", {arm.top_k for arm in arms} - {0}),
        ("--concurrency", {arm.concurrency for arm in arms} if any(arm.concurrency > 1 for arm in arms) else set()),
    ):
        found += [option, ",".join(f"{value:g}" for value in sorted(values))] if values else []
    for option, name, scale in _NUMBERS:
        value = options.get(name)
        found += [option, f"{value * scale:g}"] if isinstance(value, (int, float)) else []
    return [*found, "--prompts", "PROMPTS"]


def _name(model: object) -> str:
    return str(model.get("name") or "MODEL") if isinstance(model, Mapping) else "MODEL"


def _line(words: Sequence[str]) -> str:
    return printable(shlex.join(words), _LONGEST)
