"""The file that `doctor --capture` writes: raw outputs and what was made of them, for fixtures and for comparison.

One JSON document, indented, with texts as lists of lines, so that a person can read it before it is sent, and so that
two of them can be compared. What tells who and which machine it was is replaced before anything is written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from otel_specdecode.doctor.checks import Report
from otel_specdecode.doctor.children import ask_child
from otel_specdecode.doctor.engines import ENGINES, installed_version, supported
from otel_specdecode.doctor.recording import RecordedLinux, RecordingFiles, RecordingRunner, anonymous_cgroups
from otel_specdecode.doctor.redaction import Redaction
from otel_specdecode.host import macos
from otel_specdecode.host.commands import Commands, Output, Runner
from otel_specdecode.host.machine import linux_machine, mac_machine, this_machine
from otel_specdecode.host.macos import Kernel, MacReader
from otel_specdecode.host.process_memory import lifetime_peaks, process_memory
from otel_specdecode.host.state import HostState

FORMAT = "otel-specdecode doctor bundle 1"
RUN_SECONDS = 5.0

_RUN_LIMIT_SECONDS = 180.0
_SECTIONS = ("machine", "engines", "host")
"""What of the report goes into a bundle. The rest tells of endpoints, other programs and models."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read.

    Attributes:
        system: As `sys.platform` named it where it was made.
        runner: Answers commands as that machine did; any other "is not in the capture".
        files: What each file of that machine held, None where it was not there.
        readings: What was read there: value, source and why_unknown by name.
        content: The whole document.
    """

    system: str
    runner: Runner
    files: Mapping[str, str | None]
    readings: Mapping[str, Mapping[str, Any]]
    content: Mapping[str, Any]

    def write_files(self, root: Path) -> str:
        """Write the files below a folder, as `reader_for("linux", root=...)` reads them; return it."""
        for path, text in self.files.items():
            place = root / path.lstrip("/")
            if text is not None and root.resolve() in place.resolve().parents:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
        return str(root)


def load(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle.

    Raises:
        ValueError: The file is no bundle of a format that is known.
        OSError: It cannot be read.
    """
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("bundle") != FORMAT:
        raise ValueError(f"{Path(path).name} is not a bundle of `otel-specdecode doctor --capture`, or of a newer one")
    outputs = {
        tuple(each["command"]): Output("\n".join(each["lines"]), each["failure"]) for each in content["commands"]
    }

    def runner(*command: str) -> Output:
        return outputs.get(command) or Output("", f"{os.path.basename(command[0])} is not in the capture")

    files = {name: None if lines is None else "\n".join(lines) for name, lines in content["files"].items()}
    return Bundle(content["system"], runner, files, content["readings"], content)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a bundle into a file that is not there yet.

    Raises:
        FileExistsError: The file, or a link, is there already.
        OSError: It cannot be written.
    """
    text = json.dumps(content, indent=1) + "\n"
    with open(path, "x", encoding="ascii") as file:  # never follows a link, not even a dangling one
        try:
            file.write(text)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise


def capture(report: Report, redaction: Redaction, *, seconds: float = RUN_SECONDS) -> dict[str, Any]:
    """Read this host, keep everything raw, run the tiny pair, and return a bundle's content.

    Args:
        report: What the doctor found.
        redaction: Takes out what must not leave the machine.
        seconds: How long each installed engine generates.
    """
    host = _mac() if sys.platform == "darwin" else _linux() if sys.platform.startswith("linux") else _other()
    content = {
        "bundle": FORMAT,
        "system": sys.platform,
        **host,
        "versions": _versions(),
        "process": {"memory": process_memory()._asdict(), "lifetime_peaks": lifetime_peaks()._asdict()},
        "runs": {engine: _run(engine, seconds) for engine in _installed()},
        "checks": [asdict(section) for section in report.sections if section.id in _SECTIONS],
    }
    content["checks"] = _without_profile(content["checks"], content["machine"]["profile"])
    return dict(redaction.value(content))


def mac_host(run: Runner, kernel: Kernel | None) -> dict[str, Any]:
    """Return the host's part of a bundle of a Mac: every command's output, and what was read of it.

    Args:
        run: Runs commands.
        kernel: Answers without a command.
    """
    recorder = RecordingRunner(run)
    for command in macos.COMMANDS:
        recorder(*command)
    state = MacReader(recorder, kernel).read()
    by_commands = MacReader(recorder, None).read()
    return {
        "machine": asdict(mac_machine(recorder, kernel, environ={})),
        "readings": _readings(state),
        "readings_by_commands": _readings(by_commands),
        "commands": [
            {"command": list(command), "failure": output.failure, "lines": output.text.split("\n")}
            for command, output in recorder.outputs.items()
        ],
        "files": {},
        "folders": {},
    }


def _mac() -> dict[str, Any]:
    from otel_specdecode.host import macos_native

    return mac_host(Commands(), macos_native)


def _linux() -> dict[str, Any]:
    files = RecordingFiles()
    state = RecordedLinux(files).read()
    texts = anonymous_cgroups(files.texts)
    return {
        "machine": asdict(linux_machine(environ={})),
        "readings": _readings(state),
        "readings_by_commands": {},
        "commands": [],
        "files": {path: None if text is None else text.split("\n") for path, text in sorted(texts.items())},
        "folders": {folder: names for folder, names in sorted(files.folders.items()) if names},
    }


def _other() -> dict[str, Any]:
    parts: dict[str, Any] = {"readings": {}, "readings_by_commands": {}, "commands": [], "files": {}, "folders": {}}
    return {"machine": asdict(this_machine()), **parts}


def _readings(state: HostState) -> dict[str, Any]:
    return {name: asdict(reading) for name, reading in state.readings().items()}


def _installed() -> list[str]:
    ranges = supported()
    return [engine.module for engine in ENGINES if installed_version(ranges[engine.module].name)]


def _run(engine: str, seconds: float) -> dict[str, Any]:
    limit = seconds + _RUN_LIMIT_SECONDS
    answer = ask_child("otel_specdecode.doctor.short_run", engine, str(seconds), timeout=limit)
    return {"failure": f"the run {answer.failure}"} if answer.failure else dict(answer.found)


def _versions() -> dict[str, str | None]:
    names = (
        *(range_.name for range_ in supported().values()),
        *("mlx", "psutil", "wrapt", "opentelemetry-api", "opentelemetry-sdk", "opentelemetry-instrumentation"),
    )
    return {"python": sys.version.partition(" ")[0], **{name: installed_version(name) for name in names}}


def _without_profile(sections: Sequence[Mapping[str, Any]], profile: str) -> list[dict[str, Any]]:
    """Return the sections with the machine's own profile: one that a user gave can tell where it stands."""
    changed = []
    for section in sections:
        checks = [
            {**check, "detail": profile} if check["id"] == "machine.profile" else dict(check)
            for check in section["checks"]
        ]
        for check in checks:
            if "profile" in check["facts"]:
                check["facts"] = {**check["facts"], "profile": profile}
        changed.append({**section, "checks": checks})
    return changed
