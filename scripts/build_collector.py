"""Builds the OpenTelemetry Collector that collector/builder.yaml lists, and prints the path of the program.

    python scripts/build_collector.py FOLDER

It needs Go and the Go module proxy, some minutes of two cores and 6 GB of disk for Go's own caches. The program stands
in a folder named after the manifest and the Go that built it, so that a second run prints the path at once. With the
path in OTEL_SPECDECODE_COLLECTOR, the tests send telemetry through it.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MANIFEST = Path(__file__).parents[1] / "collector" / "builder.yaml"
BUILDER = "go.opentelemetry.io/collector/cmd/builder"


def release(manifest: str) -> str:
    """The release of the collector that a manifest is written for, which the builder's has to equal.

    Raises:
        ValueError: The manifest names none.
    """
    found = re.search(r"^  version: (\S+)$", manifest, re.MULTILINE)
    if found is None:
        raise ValueError("the manifest names no dist.version")
    return found[1]


def place(folder: Path, manifest: str, go_version: str) -> Path:
    """Where the program of a manifest stands: other contents, another Go or another machine make another place."""
    made_of = f"{go_version}\n{platform.system()}\n{platform.machine()}\n{manifest}"
    return folder / hashlib.sha256(made_of.encode()).hexdigest()[:16] / "otelcol-specdecode"


def build(go: str, version: str, program: Path) -> None:
    """Builds the program.

    It is made in a folder of its own, which the manifest calls `./build`, and moved from there when it is whole: a
    build that was interrupted is never taken for a program.
    """
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as work:
        command = (go, "run", f"{BUILDER}@v{version}", "--config", str(MANIFEST))
        # What it says goes to stderr, so that stdout holds the path alone.
        subprocess.run(command, check=True, stdout=sys.stderr, cwd=work)
        (Path(work) / "build" / program.name).replace(program)


def main(arguments: list[str]) -> int:
    """Builds in the folder named, unless it is built there already."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        print("go was not found", file=sys.stderr)
        return 1
    manifest = MANIFEST.read_text(encoding="utf-8")
    try:
        go_version = subprocess.run([go, "version"], check=True, capture_output=True, text=True).stdout.strip()
        program = place(Path(arguments[0]).resolve(), manifest, go_version)
        if not program.exists():
            build(go, release(manifest), program)
    except subprocess.CalledProcessError as error:
        print(f"{Path(error.cmd[0]).name} ended with {error.returncode}", file=sys.stderr)
        return 1
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
