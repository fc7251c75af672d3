"""The command `otel-specdecode guard log`: audit trails as a timeline."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_specdecode.generation.transition import Lane, Transition
from otel_specdecode.guard.lines import fields_of
from otel_specdecode.guard.sealing import stamp
from otel_specdecode.guard.trail import Entry, Trail, read_trail

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"closed": "green", "limited": "yellow", "open": "bold red", "probing": "cyan"}
_COLUMNS = ("time", "process", "scope", "lane", "state", "rung", "trigger", "measured", "")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SECONDS_BETWEEN_LOOKS = 1.0
_ANY_WIDTH = 100_000


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a time of day that is given as such or as how long ago it is, in ns since the epoch."""
    if value is None:
        return None
    ago = re.fullmatch(r"(\d{1,9})([smhd])", value)
    if ago:
        return time.time_ns() - int(ago[1]) * _UNITS[ago[2]] * 10**9
    try:
        # Python 3.10 knows neither Z nor more than six digits.
        found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", re.sub(r"[zZ]\Z", "+00:00", value)))
        found = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
        return int(found.timestamp()) * 10**9 + found.microsecond * 1000
    except (ValueError, OverflowError):
        told = f"{value!r} is neither a time (2026-01-31T12:00:00Z) nor how long ago it is (30m, 2h, 7d)."
        raise click.BadParameter(told, ctx, param) from None


def there(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths, all of which are there; of a pipe nobody knows when it ends."""
    for path in paths:
        if not path.exists():
            told = f"{path} is not there. A guard makes its folder at its first decision, in the folder of its policy."
            raise click.BadParameter(told, ctx, param)
        if not path.is_dir() and not path.is_file():
            raise click.BadParameter(f"{path} is neither a folder nor a file.", ctx, param)
    return paths


@dataclass(frozen=True, slots=True)
class Asked:
    """What to show; None and nothing mean all.

    Attributes:
        since: From this time on, ns since the epoch.
        until: Before this time.
        scope: Kind of the scope.
        tenant: Tenant, for transitions whose scope is a tenant.
        session: Session, likewise.
        triggers: Names of triggers.
    """

    since: int | None = None
    until: int | None = None
    scope: str | None = None
    tenant: str | None = None
    session: str | None = None
    triggers: frozenset[str] = frozenset()

    def takes(self, transition: Transition) -> bool:
        """Return whether to show a transition."""
        lane = transition.lane
        return (
            (self.since is None or transition.at >= self.since)
            and (self.until is None or transition.at < self.until)
            and (self.scope is None or lane.scope == self.scope)
            and (self.tenant is None or (lane.scope, lane.key) == ("tenant", self.tenant))
            and (self.session is None or (lane.scope, lane.key) == ("session", self.session))
            and (not self.triggers or transition.trigger in self.triggers)
        )


@click.command("log")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), callback=there, metavar="FOLDER|FILE..."
)
@click.option("--since", callback=moment, help="From this time on: 2026-01-31T12:00:00Z, or 30m, 2h, 7d ago.")
@click.option("--until", callback=moment, help="Before this time, written likewise.")
@click.option("--scope", type=click.Choice(["process", "tenant", "session"]), help="Decisions for this kind alone.")
@click.option("--tenant", help="Decisions for this tenant alone.")
@click.option("--session", help="Decisions for this session alone.")
@click.option("--trigger", "triggers", multiple=True, help="Decisions by this trigger alone; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--follow", is_flag=True, help="Go on, and print what is added, until Ctrl-C.")
def log(
    paths: tuple[Path, ...],
    since: int | None,
    until: int | None,
    scope: str | None,
    tenant: str | None,
    session: str | None,
    triggers: tuple[str, ...],
    as_json: bool,
    follow: bool,
) -> None:
    """Print what the guard decided, of all processes, in order of time.

    Reads the audit trail in a folder, or single files of it, also while processes write. What is no longer as it was
    written is told on the standard error; if lines were altered or taken away, the exit status is 1.
    """
    asked = Asked(since, until, scope, tenant, session, frozenset(triggers))
    show = _show_json if as_json else _show
    try:
        trail = read_trail(paths)
        shown = chosen(trail, asked)
        show(shown)
        if not shown and not faults(trail):
            of_all = f"None of {len(trail.entries)} decisions was asked for."
            click.echo(of_all if trail.entries else "Nothing was decided yet.", err=True)
        if follow:
            for added in following(lambda: read_trail(paths), trail, lambda: time.sleep(_SECONDS_BETWEEN_LOOKS)):
                show(chosen(added, asked))
    except BrokenPipeError:  # whoever reads has enough, which click knows how to end on
        raise
    except OSError as error:
        raise click.ClickException(_told(error)) from error
    except KeyboardInterrupt:
        sys.exit(130)
    for sentence in faults(trail):
        click.echo(sentence, err=True)
    sys.exit(0 if trail.is_whole else 1)


def chosen(trail: Trail, asked: Asked) -> list[Entry]:
    """Return the transitions that were asked for."""
    return [entry for entry in trail.entries if asked.takes(entry.transition)]


def following(read: Callable[[], Trail], before: Trail, wait: Callable[[], None]) -> Iterator[Trail]:
    """Yield trails of what was added since the last look, for ever.

    Args:
        read: Reads the whole trail.
        before: What was there at the last look.
        wait: Waits until the next.
    """
    seen = {(entry.process, entry.number) for entry in before.entries}
    while True:
        wait()
        added = tuple(entry for entry in read().entries if (entry.process, entry.number) not in seen)
        seen.update((entry.process, entry.number) for entry in added)
        yield Trail(added)


def faults(trail: Trail) -> list[str]:
    """Return what there is to say of a trail that is not all there, in sentences."""
    told = {
        f"{_lines(trail.lost)} lost when written: the disk was full, or the folder away, for too long.": trail.lost,
        f"{_lines(trail.unfinished)} without an end: being written, or cut off when the process was killed.": (
            trail.unfinished
        ),
        f"{_lines(trail.unreadable)} not as written: torn or altered.": trail.unreadable,
        f"Left out: {trail.newer} written by a later release, which reads them.": trail.newer,
        f"{_lines(trail.missing)} missing: taken away after they were written.": trail.missing,
    }
    return [sentence for sentence, count in told.items() if count]


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"


def _told(error: OSError) -> str:
    """Return what is wrong with a file, without its folder, which may be somebody's home."""
    name = os.path.basename(os.fsdecode(error.filename)) if error.filename else "a file"
    return f"{name} cannot be read: {error.strerror}"


def _show_json(entries: Sequence[Entry]) -> None:
    for entry in entries:
        fields = {"process": entry.process, "number": entry.number, **fields_of(entry.transition)}
        click.echo(json.dumps(fields))


def _show(entries: Sequence[Entry]) -> None:
    """Print a table on a terminal that is wide enough for it, aligned columns elsewhere."""
    rows = [_row(entry) for entry in entries]
    if not rows:
        return
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        table = _table(rows, [entry.transition.after for entry in entries])
        if console.measure(table, options=console.options.update(width=_ANY_WIDTH)).maximum <= console.width:
            console.print(table)
            return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _table(rows: Sequence[tuple[str, ...]], states: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in _COLUMNS:
        table.add_column(title, overflow="fold", no_wrap=title == "time")
    for row, state in zip(rows, states, strict=True):
        cells = [Text(cell) for cell in row]
        cells[_COLUMNS.index("state")].stylize(_STYLES.get(state, ""))
        table.add_row(*cells)
    return table


def _row(entry: Entry) -> tuple[str, ...]:
    said = entry.transition
    return tuple(
        _printable(cell)
        for cell in (
            _milliseconds(said.at),
            entry.process.partition("-")[0],
            _scope(said.lane),
            " ".join(part for part in (said.lane.provider, said.lane.model, said.lane.method) if part) or "machine",
            f"{said.before} -> {said.after}",
            said.rung_after if said.rung_before == said.rung_after else f"{said.rung_before} -> {said.rung_after}",
            said.trigger,
            _measured(said),
            "observe only" if said.observe_only else "",
        )
    )


def _milliseconds(at: int) -> str:
    text = stamp(at)
    return f"{text[:-7]}Z" if text.endswith("Z") else text


def _scope(lane: Lane) -> str:
    return lane.scope if lane.key is None else f"{lane.scope} {lane.key}"


def _measured(said: Transition) -> str:
    if said.value is None:
        return ""
    bound = "" if said.threshold is None else f", bound {said.threshold:.4g}"
    return f"{said.value:.4g}{bound} ({said.samples} in {said.window_seconds:.4g} s)"


def _printable(text: str) -> str:
    """Return a text without anything that moves a terminal's cursor or that no encoding has."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
