"""Runs one command with a time limit. What goes wrong is a reason, never an exception."""

from __future__ import annotations

import os.path
import subprocess
from dataclasses import dataclass
from typing import Protocol

from otel_specdecode.thresholds import thresholds

# No locale but C: what is parsed must not be translated. Nothing else of the environment is the program's business.
ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}


@dataclass(frozen=True, slots=True)
class Output:
    """What a command wrote.

    Attributes:
        text: Its standard output, as far as it came.
        failure: Why the output is missing or may be incomplete; empty if the command succeeded.
    """

    text: str
    failure: str = ""


class Runner(Protocol):
    """Runs a command, or hands out what one wrote elsewhere."""

    def __call__(self, *command: str) -> Output:
        """Return the output of a program, given by its full path, with its arguments."""
        ...


class Commands:
    """Runs commands of this system."""

    def __init__(self, timeout: float | None = None) -> None:
        """Limit each command to so many seconds; by default to those of thresholds.toml."""
        self._timeout = float(thresholds()["host"]["command_timeout"]) if timeout is None else timeout

    def __call__(self, *command: str) -> Output:
        """Return the output of a program, given by its full path, with its arguments."""
        name = os.path.basename(command[0])
        try:
            # With a full path and without closing descriptors, Python spawns on macOS instead of forking. A fork would
            # copy the address space, model included, while it holds the GIL. Python's own descriptors close on exec.
            finished = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                close_fds=False,
                env=ENVIRONMENT,
                timeout=self._timeout,
                check=False,
            )
        except FileNotFoundError:
            return Output("", f"{name} is not there")
        except subprocess.TimeoutExpired:
            return Output("", f"{name} took longer than {self._timeout:g} s")
        except Exception as error:
            return Output("", f"{name} could not be run ({type(error).__name__})")
        failure = f"{name} ended with status {finished.returncode}" if finished.returncode else ""
        return Output(finished.stdout.decode("utf-8", "replace"), failure)
