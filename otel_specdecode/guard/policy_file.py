"""Reads a policy file, and says in which line what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_specdecode.guard.policy import VERSIONS, Policy
from otel_specdecode.guard.policy_rules import broken_rules
from otel_specdecode.guard.policy_shape import plain, read_parts, shown
from otel_specdecode.guard.toml_file import Finding, PolicyError, read_toml


@dataclass(frozen=True)
class PolicyFile:
    """A policy and where it was read.

    Attributes:
        policy: What it says.
        folder: The folder of its file, which relative paths in it start from.
    """

    policy: Policy
    folder: Path

    @property
    def flag_file(self) -> Path | None:
        """The policy's `flag_file`."""
        return self._resolved(self.policy.flag_file)

    @property
    def canary_file(self) -> Path | None:
        """The policy's `canary_file`."""
        return self._resolved(self.policy.canary_file)

    @property
    def baseline_file(self) -> Path | None:
        """The policy's `baseline.file`."""
        return self._resolved(self.policy.baseline.file)

    @property
    def baseline_written(self) -> Path | None:
        """The policy's `baseline.write`."""
        return self._resolved(self.policy.baseline.write)

    @property
    def audit_folder(self) -> Path | None:
        """The policy's `audit.folder`."""
        return self._resolved(self.policy.audit.folder)

    def _resolved(self, path: str | None) -> Path | None:
        return None if path is None else self.folder / path


def read_policy(path: str | os.PathLike[str]) -> PolicyFile:
    """Return the policy in a file.

    Raises:
        PolicyError: It cannot be read, is no TOML, or says what no policy may say.
    """
    file = read_toml(path, "otel-specdecode guard init --output FILE")
    document = file.document
    folder = Path(path).absolute().parent
    findings: list[Finding] = list(_other_version(document))
    if not findings:
        parts = read_parts(Policy, document, (), findings)
        findings += broken_rules(parts, folder, Path(path).absolute())
    if not findings:
        return PolicyFile(Policy(**parts), folder)
    raise file.error(findings)


def policy_in_code(policy: Policy, folder: Path) -> PolicyFile:
    """Return a policy that was made in code, as it would be of a file that says the same.

    Args:
        policy: The policy; nothing held its values against their types.
        folder: What its relative paths start from.

    Raises:
        PolicyError: It says what no policy may say.
    """
    said = plain(policy)
    findings: list[Finding] = list(_other_version(said))
    if not findings:
        parts = read_parts(Policy, said, (), findings)
        findings += broken_rules(parts, folder)
    if not findings:
        return PolicyFile(Policy(**parts), folder)
    raise PolicyError(dict.fromkeys(each.message for each in findings))


def _other_version(document: dict[str, Any]) -> Iterable[Finding]:
    """What is wrong with the version; the keys of another one are not known, so nothing else is worth telling then."""
    version = document.get("version", VERSIONS[-1])
    if isinstance(version, bool) or not isinstance(version, int) or version not in VERSIONS:
        readable = ", ".join(map(str, VERSIONS))
        what = f"this release reads version {readable} of the format, not {shown(version)}"
        yield Finding(("version",), f"{what}: `otel-specdecode guard init` prints one to adapt")
