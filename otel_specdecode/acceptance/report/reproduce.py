"""Commands that make a run and its report again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from otel_specdecode.acceptance.records import Arm, Run
from otel_specdecode.acceptance.report.escaping import printable

COMMAND = "command"
"""The option of a run's head that holds its command line."""

_LONGEST = 2000


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
    drafts = run.head.manifest.get("drafts")
    names = [_name(each.get("model")) for each in drafts.values()] if isinstance(drafts, Mapping) else []
    arms = run.head.arms
    found = ["--engine", run.head.engine, "--model", _name(run.head.manifest.get("target"))]
    found += [part for name in names for part in ("--draft", name)]
    found += _lever(arms, "--draft-tokens", "draft_length")
    found += _lever(arms, "--concurrency", "concurrency") if any(arm.concurrency > 1 for arm in arms) else []
    return [*found, "--prompts", "PROMPTS"]


def _lever(arms: Sequence[Arm], option: str, name: str) -> list[str]:
    values = sorted({getattr(arm, name) for arm in arms} - {0})
    return [option, ",".join(f"{value:g}" for value in values)] if values else []


def _name(model: object) -> str:
    return str(model.get("name") or "MODEL") if isinstance(model, Mapping) else "MODEL"


def _line(words: Sequence[str]) -> str:
    return printable(shlex.join(words), _LONGEST)
