"""A report, from the folders of its runs to its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.gates.policy import GatesPolicy, Preset
from otel_specdecode.acceptance.gates.policy_file import preset_policy, read_gates
from otel_specdecode.acceptance.gates.verdict import evaluate
from otel_specdecode.acceptance.report.cost import Rates
from otel_specdecode.acceptance.report.facts import Report, gather
from otel_specdecode.acceptance.report.formats import as_badge, as_csv, as_json, as_markdown
from otel_specdecode.acceptance.report.page import page
from otel_specdecode.acceptance.report.writing import EVIDENCE, evidence_digest, write_all
from otel_specdecode.acceptance.storage import read_run
from otel_specdecode.guard.toml_file import PolicyError

PRESET: Final[Preset] = "balanced"

_FORMATS: Final = {"html": page, "json": as_json, "csv": as_csv, "markdown": as_markdown, "badge": as_badge}


def made(
    folder: Path,
    soak: Path | None = None,
    policy: Path | None = None,
    preset: Preset = PRESET,
    *,
    now: float,
    arm: str | None = None,
    rates: Rates | None = None,
) -> Report:
    """Return the report of a run.

    Args:
        folder: Of the run.
        soak: Of a soak that belongs to it.
        policy: File of the gates; None takes the preset.
        preset: Which, where there is no file.
        now: Seconds since the epoch.
        arm: Name of the arm to judge; None takes the fastest.
        rates: What an hour costs.

    Raises:
        AcceptanceError: A run, or the policy, cannot be used.
    """
    folders = [each for each in (folder, soak) if each is not None]
    runs = [read_run(each) for each in folders]
    beside = runs[1] if soak is not None else None
    verdict = evaluate(_gates(policy, preset), runs[0], beside, now=now, arm=arm)
    return gather(
        runs[0],
        beside,
        verdict,
        evidence={run.head.run_id: evidence_digest(each) for run, each in zip(runs, folders, strict=True)},
        made_at=now,
        rates=rates,
        policy=policy.name if policy else None,
    )


def _gates(policy: Path | None, preset: Preset) -> GatesPolicy:
    if policy is None:
        return preset_policy(preset)
    try:
        return read_gates(policy)
    except PolicyError as error:
        raise AcceptanceError(str(error)) from None


def files(report: Report, wanted: Mapping[str, Path | None], runs: tuple[Path, ...] = ()) -> list[Path]:
    """Write a report's files, replacing those that are there, all or none, and return their paths.

    Args:
        report: The report.
        wanted: By format (`html`, `json`, `csv`, `markdown`, `badge`) the file.
        runs: Folders of the runs, whose own files are left alone.

    Raises:
        AcceptanceError: One cannot be written, two are one, or one is a run's own.
    """
    paths = {name: path for name, path in wanted.items() if path is not None}
    taken = {(folder / name).resolve() for folder in runs for name in EVIDENCE}
    for name, path in paths.items():
        if path.resolve() in taken:
            raise AcceptanceError(f"{path} is a file of the run, or is named twice: name another file for the {name}.")
        taken.add(path.resolve())
    write_all({path: _FORMATS[name](report) for name, path in paths.items()})
    return list(paths.values())
