"""Captured outputs, a Mac that answers with them, and ways to spoil a text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

from otel_specdecode.host import macos
from otel_specdecode.host.commands import Output

CAPTURED = Path(__file__).parent / "captured"
FOLDERS = {
    "pmset-g": macos.PMSET_COMMAND,
    "pmset-custom": macos.PMSET_CUSTOM_COMMAND,
    "pmset-batt": macos.PMSET_BATTERY_COMMAND,
    "pmset-therm": macos.PMSET_THERMAL_COMMAND,
    "notifyutil": macos.NOTIFY_COMMAND,
    "sysctl": macos.SYSCTL_COMMAND,
    "vm_stat": macos.VM_STAT_COMMAND,
}
"""The command behind each folder of captured outputs."""


def captured(name: str) -> str:
    """One captured output, named as `folder/file`."""
    return (CAPTURED / f"{name}.txt").read_text(encoding="utf-8")


def all_captured(folder: str) -> list[str]:
    """The names of all outputs in a folder."""
    return sorted(f"{folder}/{path.stem}" for path in (CAPTURED / folder).glob("*.txt"))


class FakeMac:
    """A runner that answers with captured outputs and remembers what was asked."""

    def __init__(self, *names: str, texts: Mapping[str, str] | None = None) -> None:
        """Answer with these captures, and for these folders with these texts."""
        answers = {name.partition("/")[0]: captured(name) for name in names} | dict(texts or {})
        self.answers = {FOLDERS[folder]: text for folder, text in answers.items()}
        self.asked: list[str] = []

    def __call__(self, *command: str) -> Output:
        self.asked.append(" ".join([Path(command[0]).name, *command[1:]]))
        text = self.answers.get(command)
        return Output("", f"{Path(command[0]).name} is not there") if text is None else Output(text)


def spoiled(text: str) -> st.SearchStrategy[str]:
    """The text with lines dropped, doubled, cut short, garbled, or cut off altogether."""
    lines = text.splitlines()
    kinds = st.sampled_from(["drop", "double", "cut", "garble", "replace", "end"])
    places = st.integers(0, max(len(lines) - 1, 0))
    junk = st.text(max_size=12) | st.sampled_from(["9" * 30, "-1", "٣", "²", "NaN", "1e999", "100%", ": ", "\0", "= 3"])

    def spoil(changes: list[tuple[str, int, str, int]]) -> str:
        changed = list(lines)
        for kind, place, piece, column in changes:
            if place >= len(changed):
                continue
            line = changed[place]
            match kind:
                case "drop":
                    del changed[place]
                case "double":
                    changed.insert(place, line)
                case "cut":
                    changed[place] = line[:column]
                case "garble":
                    changed[place] = line[:column] + piece + line[column + len(piece) :]
                case "replace":
                    changed[place] = piece
                case _:
                    del changed[place + 1 :]
        return "\n".join(changed)

    return st.lists(st.tuples(kinds, places, junk, st.integers(0, 60)), min_size=1, max_size=4).map(spoil)
