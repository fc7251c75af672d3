"""Builds the llama-server whose source the installed llama-cpp-python vendors, and prints the path of the program.

    python scripts/build_llama_server.py FOLDER

It needs a C++ compiler, cmake and ninja (`pip install cmake ninja` brings the latter two), the network, and about
twenty minutes of one core. A second run in the same folder goes on where the first one stopped. With the path in
OTEL_SPECDECODE_LLAMA_SERVER, the tests hold this library's counts against the server's.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = "llama-cpp-python"
PARTS_LEFT_OUT = ("LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_UI", "LLAMA_OPENSSL", "BUILD_SHARED_LIBS")


def source(folder: Path, release: str) -> Path:
    """The llama.cpp in a release of llama-cpp-python, unpacked in the folder; downloaded if it is not there yet."""
    archive = folder / f"llama_cpp_python-{release}.tar.gz"
    if not archive.exists():
        wanted = ["--no-deps", "--no-binary", PACKAGE, "--dest", str(folder), f"{PACKAGE}=={release}"]
        _run(sys.executable, "-m", "pip", "download", *wanted)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / f"llama_cpp_python-{release}" / "vendor" / "llama.cpp"


def build(tree: Path, into: Path) -> Path:
    """The program, built from a tree of llama.cpp."""
    options = [f"-D{part}=OFF" for part in PARTS_LEFT_OUT]
    _run("cmake", "-S", str(tree), "-B", str(into), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options)
    _run("cmake", "--build", str(into), "--target", "llama-server")
    return into / "bin" / "llama-server"


def main(arguments: list[str]) -> int:
    """Builds in the folder named."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        release = version(PACKAGE)
        print(build(source(folder, release), folder / f"build-{release}"))
    except PackageNotFoundError:
        print(f"{PACKAGE} is not installed: its version decides what is built", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f"{error.filename} was not found", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} ended with {error.returncode}", file=sys.stderr)
        return 1
    return 0


def _run(*command: str) -> None:
    """Runs a command; what it says goes to stderr, so that stdout holds the path alone."""
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
