"""The commands `otel-specdecode sweep`, `soak` and `manifest`. What needs more than click is imported when they run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from otel_specdecode.acceptance.ending import interruptible, though_unprinted, told
from otel_specdecode.acceptance.words import Finite, Numbers, Pairs, command_line, drafts_by_label
from otel_specdecode.thresholds import thresholds

if TYPE_CHECKING:
    from otel_specdecode.acceptance.engines.interface import Engine, Models
    from otel_specdecode.acceptance.prompts import Prompt
    from otel_specdecode.acceptance.running import Setting

INCOMPLETE = 3
"""Exit status of a sweep whose time was over before its end."""

_BOUNDS = thresholds()["sweep"]
_MINUTE, _HOUR = 60.0, 3600.0
_LARGEST_SEED = 2**31  # the last repeat's seed is one that every engine takes, too

Command = TypeVar("Command", bound=Callable[..., None])


note_option = click.option(
    "--note",
    "notes",
    type=Pairs(),
    multiple=True,
    help="What the machine does not tell: ambient=21C, placement, fan, power_limit, background.",
)


def models_options(command: Command) -> Command:
    """Add the options that say what is loaded."""
    for option in reversed(
        (
            click.option("--engine", help="mlx or llama_cpp.  [default: llama_cpp for a GGUF file, else mlx]"),
            click.option("--model", required=True, help="The target: a folder, a GGUF file, a cached hub id, or tiny."),
            click.option(
                "--draft",
                "drafts",
                multiple=True,
                help="A draft, as a target; several as LABEL=MODEL. prompt-lookup with llama_cpp; tiny:draft.",
            ),
            click.option(
                "--option",
                "options",
                type=Pairs(),
                multiple=True,
                help="An option of the engine for target and draft, such as n_ctx=4096.",
            ),
            click.option("--stop", multiple=True, help="A text that ends an answer."),
            click.option(
                "--seed", type=click.IntRange(0, _LARGEST_SEED), default=0, show_default=True, help="Of the sampling."
            ),
        )
    ):
        command = option(command)
    return command


def run_options(command: Command) -> Command:
    """Add the options that say what is asked, and where the run is kept."""
    for option in reversed(
        (
            click.option(
                "--prompts",
                "prompt_files",
                type=click.Path(path_type=Path),
                multiple=True,
                help="A JSONL file of prompts.  [default: a bundled mix]",
            ),
            click.option(
                "--mix",
                "mixes",
                multiple=True,
                help="A bundled mix: default, checked or tiny; several, and beside --prompts, count together.",
            ),
            click.option("--out", type=click.Path(path_type=Path), help="Folder of the run.  [default: runs/RUN_ID]"),
            click.option("--run-id", help="Its name on spans, metrics and files.  [default: by the time]"),
            note_option,
        )
    ):
        command = option(command)
    return command


@click.command()
@models_options
@run_options
@click.option(
    "--draft-tokens",
    type=Numbers(int, 1, 64),
    default="2,3,4,6",
    show_default=True,
    help="Draft lengths to try.",
)
@click.option("--temperature", "temperatures", type=Numbers(float, 0.01, 5), help="Try these at the best length.")
@click.option("--top-k", "top_ks", type=Numbers(int, 1, 1_000_000), help="Try these at the best length.")
@click.option("--concurrency", type=Numbers(int, 1, 64), default="1", show_default=True, help="Requests at once.")
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=3, show_default=True, help="Of each prompt in each arm."
)
@click.option("--warm-up", type=Finite(0, 86_400), default=180.0, show_default=True, help="Seconds.")
@click.option(
    "--cool-down", type=Finite(0, 86_400), default=0.0, show_default=True, help="Seconds between two requests."
)
@click.option("--max-hours", type=Finite(0.001, 10_000), help="Begin nothing more after so many hours.")
@click.option(
    "--stop-below",
    type=Finite(0, 1),
    default=_BOUNDS["stop_accept_rate"],
    show_default=True,
    help=f"Try no longer drafts after {_BOUNDS['stop_steps']} lengths with a lower accept rate; 0: try all.",
)
@click.option(
    "--tune-above",
    type=Finite(0, 1),
    default=_BOUNDS["tuning_accept_rate"],
    show_default=True,
    help="Try other levers where each context tier accepts as much at the best length; 0: always.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--anyway", is_flag=True, help="Also if that was of another manifest.")
def sweep(**asked: Any) -> None:
    """Run a target alone and with drafts of several lengths, and say which length pays, if any does.

    The baseline comes first, then one lever at a time; repeats are interleaved. It may be interrupted and resumed.
    The exit status is 3 where --max-hours ended it, 130 after Ctrl-C, and 143 after SIGTERM.
    """
    with told():
        from otel_specdecode.acceptance.running import notes_not_kept
        from otel_specdecode.acceptance.running import sweep as run_sweep
        from otel_specdecode.acceptance.storage import holds_run
        from otel_specdecode.acceptance.sweep import Levers
        from otel_specdecode.acceptance.terminal import progress, show_run

        if asked["resume"] and asked["out"] is None:
            raise click.UsageError("--resume needs --out: the folder of the run to go on with")
        drafts = drafts_by_label(asked["drafts"])
        if not drafts:
            raise click.UsageError("a sweep needs a --draft to compare with the target alone")
        levers = Levers(
            draft_lengths=asked["draft_tokens"],
            drafts=tuple(drafts),
            temperatures=asked["temperatures"] or (),
            top_ks=asked["top_ks"] or (),
            concurrency=asked["concurrency"],
            repeats=asked["repeats"],
            warm_up=asked["warm_up"],
            cool_down=asked["cool_down"],
            max_seconds=asked["max_hours"] and asked["max_hours"] * _HOUR,
            seed=asked["seed"],
            stop_below=asked["stop_below"],
            tune_above=asked["tune_above"],
        )
        setting = _setting(asked, drafts, threads=max(levers.concurrency))
        if setting.resume and holds_run(setting.folder) and (why := notes_not_kept(setting.folder, setting.notes)):
            raise click.UsageError(why)
        with interruptible(setting.folder, resumable=True), progress("Requests") as step:
            complete = run_sweep(setting, levers, step)
        with though_unprinted():  # the run is on the disk
            show_run(setting.folder)
    if not complete:
        click.echo(
            "Its time is over before its end; go on with the same command and --resume --out "
            f"{shlex.quote(str(setting.folder))}",
            err=True,
        )
        sys.exit(INCOMPLETE)


@click.command()
@models_options
@run_options
@click.option("--minutes", type=Finite(0.01, 14_400), default=30.0, show_default=True, help="For how long.")
@click.option(
    "--baseline-minutes",
    type=Finite(0, 14_400),
    help="How long the target runs alone before it.  [default: a third, 10 at most]",
)
@click.option("--draft-tokens", type=click.IntRange(1, 64), default=4, show_default=True, help="The draft length.")
@click.option("--temperature", type=Finite(0, 5), default=0.0, show_default=True, help="Of the sampling.")
@click.option("--top-k", type=click.IntRange(0), default=0, show_default=True, help="Of the sampling; 0 for all.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=1, show_default=True, help="Requests at once.")
@click.option("--warm-up", type=Finite(0, 86_400), default=180.0, show_default=True, help="Seconds.")
@click.option(
    "--shape",
    type=click.Choice(["steady", "poisson", "bursts"]),
    default="steady",
    show_default=True,
    help="steady: always busy; poisson: at random times; bursts: --concurrency requests at a time.",
)
@click.option("--per-minute", type=Finite(0.01, 100_000), help="Requests, or bursts, a minute.")
def soak(**asked: Any) -> None:
    """Decode for a long time under one load, and record what memory, heat and speed do."""
    with told():
        from otel_specdecode.acceptance.records import Arm
        from otel_specdecode.acceptance.running import soak as run_soak
        from otel_specdecode.acceptance.soak import Load, SoakPlan
        from otel_specdecode.acceptance.terminal import progress, show_run

        if (asked["shape"] == "steady") != (asked["per_minute"] is None):
            raise click.UsageError("--per-minute goes with --shape poisson or bursts, which need it")
        drafts = drafts_by_label(asked["drafts"])
        if len(drafts) > 1:
            raise click.UsageError("a soak takes one --draft")
        length = asked["draft_tokens"] if drafts else 0
        arm = Arm(length, next(iter(drafts), ""), asked["temperature"], asked["top_k"], asked["concurrency"])
        baseline = asked["baseline_minutes"]
        plan = SoakPlan(
            arm=arm,
            seconds=asked["minutes"] * _MINUTE,
            baseline_seconds=_MINUTE * (min(asked["minutes"] / 3, 10.0) if baseline is None else baseline),
            warm_up=asked["warm_up"],
            load=Load(asked["shape"], asked["per_minute"] or 0.0),
            seed=asked["seed"],
        )
        setting = _setting({**asked, "resume": False, "anyway": False}, drafts, threads=arm.concurrency)
        with interruptible(setting.folder, resumable=False), progress("Seconds") as step:
            run_soak(setting, plan, step)
        with though_unprinted():  # the run is on the disk
            show_run(setting.folder)


@click.command()
@models_options
@note_option
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="A file, instead of the screen.")
def manifest(**asked: Any) -> None:
    """Print what would run, and how the machine is: `manifest` and `conditions` as JSON, each with its id.

    It loads the target and its drafts. The conditions are power, heat, memory pressure, the CPU that other programs
    take meanwhile, and what is noted.
    """
    with told():
        import json

        from otel_specdecode.acceptance.report.writing import write_all
        from otel_specdecode.acceptance.running import manifest_and_conditions

        drafts = drafts_by_label(asked["drafts"])
        engine = _engine(asked["engine"], asked["model"])
        notes = _notes(asked["notes"])
        document = manifest_and_conditions(engine, _models(asked, drafts, threads=1), notes)
        text = json.dumps(document, indent=2, sort_keys=True)
        if asked["output"] is None:
            click.echo(text)
            return
        write_all({asked["output"]: text + "\n"})


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("baseline.json"),
    show_default=True,
    help="The file; one that is there is replaced.",
)
@click.option(
    "--operation",
    "operations",
    type=click.Choice(["text_completion", "chat"]),
    multiple=True,
    help="What the service's requests are called on spans.  [default: both]",
)
def baseline(run: Path, output: Path, operations: tuple[str, ...]) -> None:
    """Write the baseline that a sweep or soak in folder RUN measured, for a policy's `[baseline] file`."""
    with told():
        from otel_specdecode.acceptance.guard_baseline import OPERATIONS, write_guard_baseline
        from otel_specdecode.acceptance.storage import read_run

        count = write_guard_baseline(read_run(run), output, operations or OPERATIONS)
    click.echo(f"Wrote {output}: {count} combination{'' if count == 1 else 's'} of conditions.", err=True)


def _setting(asked: dict[str, Any], drafts: dict[str, str], threads: int) -> Setting:
    from otel_specdecode.acceptance.running import Setting, check_run_id, new_run_id

    notes = _notes(asked["notes"])
    run_id = check_run_id(asked["run_id"] or new_run_id())  # before it names a folder
    return Setting(
        engine=_engine(asked["engine"], asked["model"]),
        models=_models(asked, drafts, threads),
        prompts=_prompts(asked["prompt_files"], asked["mixes"], asked["model"]),
        folder=asked["out"] or Path("runs") / run_id,
        run_id=run_id,
        notes=notes,
        resume=asked["resume"],
        anyway=asked["anyway"],
        command=command_line(),
    )


def _notes(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    from otel_specdecode.acceptance.frozen import NOTES

    notes = dict(pairs)
    unknown = sorted(set(notes) - set(NOTES))
    if unknown:
        raise click.UsageError(f"--note {unknown[0]}: it is one of {', '.join(NOTES)}")
    return notes


def _engine(name: str | None, model: str) -> Engine:
    from importlib.util import find_spec

    from otel_specdecode.acceptance.engines import NAMES, engine_named

    if name is None:
        name = "llama_cpp" if model.lower().endswith(".gguf") or find_spec("mlx_lm") is None else "mlx"
    if name not in NAMES:
        raise click.UsageError(f"--engine {name}: it is one of {', '.join(NAMES)}")
    return engine_named(name)


def _models(asked: dict[str, Any], drafts: dict[str, str], threads: int) -> Models:
    from otel_specdecode.acceptance.engines.interface import Models

    options = {name: _plain(value) for name, value in asked["options"]}
    return Models(asked["model"], drafts, options, asked["seed"], asked["stop"], threads)


def _plain(value: str) -> int | float | str | bool:
    """Return a value as what it looks like."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _prompts(files: tuple[Path, ...], mixes: tuple[str, ...], model: str) -> tuple[Prompt, ...]:
    from otel_specdecode.acceptance.mix import gathered

    if not files and not mixes:
        mixes = ("tiny" if model == "tiny" else "default",)
    return gathered(files, mixes)
