"""What whoever runs the program says about it: the part of a manifest that cannot be read off the models."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from otel_specdecode.identity.canonical import canonical_json, sha256_of
from otel_specdecode.identity.files import open_plain
from otel_specdecode.identity.models import Setting

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RUN_ID = "OTEL_SPECDECODE_RUN_ID"
DECLARATION = "OTEL_SPECDECODE_DECLARATION"

Policy = str | os.PathLike[str] | Mapping[str, Any]

_logger = logging.getLogger("otel_specdecode")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_TEXT, _MOST_ENTRIES, _MOST_DRAFT_LENGTH = 128, 64, 1_024
_MOST_FILE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Declared:
    """What was declared for this process; each is None, or empty, where nothing was.

    Attributes:
        run_id: Name of the run that this process belongs to. The one thing here that is not part of a manifest's id.
        draft_length: The draft length that is meant to be used.
        stop_sequences: Texts that end an answer, sorted.
        sampling: Parameters of the sampling that is meant to be used, sorted by name.
        gate_policy: `sha256:` and the digest of the gates that the run is held against.
        guard_policy: `sha256:` and the digest of the guard's policy.
        side_load_note: What was brought in by hand beside the models' own files, in a few words.
    """

    run_id: str | None = None
    draft_length: int | None = None
    stop_sequences: tuple[str, ...] = ()
    sampling: tuple[Setting, ...] = ()
    gate_policy: str | None = None
    guard_policy: str | None = None
    side_load_note: str | None = None


_lock = threading.RLock()
_current: Declared | None = None


def _renew_lock() -> None:
    """Let the child of a fork go on, whoever held the lock in its parent."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def declare(
    *,
    run_id: str | None = None,
    draft_length: int | None = None,
    stop_sequences: Iterable[str] = (),
    sampling: Mapping[str, str | int | float | bool | None] | None = None,
    gate_policy: Policy | None = None,
    guard_policy: Policy | None = None,
    side_load_note: str | None = None,
) -> Declared:
    """Declare what this process runs, in place of all that was declared before.

    Args:
        run_id: Name of the run, printable, at most 128 characters. Without one, that of OTEL_SPECDECODE_RUN_ID.
        draft_length: The draft length that is meant to be used.
        stop_sequences: Texts that end an answer; their order has no meaning.
        sampling: Parameters such as `temperature`. Those that are None are left out.
        gate_policy: A file or its content. Only its sha256 is kept, also if that is what is handed over.
        guard_policy: As `gate_policy`.
        side_load_note: What was brought in by hand, printable, at most 128 characters.

    Returns:
        What is declared from now on.

    Raises:
        ValueError: Something is not as said above. Nothing is changed then.
    """
    global _current
    made, complaints = _with_run_of_environment(
        _made(run_id, draft_length, stop_sequences, sampling, gate_policy, guard_policy, side_load_note)
    )
    with _lock:
        _current = made
    _warn(complaints)
    return made


def declare_guard(policy: str | None) -> str | None:
    """Declare the policy of the guard that runs now, beside all that was declared before.

    Args:
        policy: `sha256:` and its digest; None: no guard runs.

    Returns:
        What was declared in its place before.
    """
    return _declare_beside(lambda before: replace(before, guard_policy=policy)).guard_policy


def declare_run(run_id: str | None) -> str | None:
    """Declare the run that this process belongs to from now on, beside all that was declared before.

    Args:
        run_id: Its name; None: no run.

    Returns:
        What was declared in its place before.
    """
    return _declare_beside(lambda before: replace(before, run_id=run_id)).run_id


def _declare_beside(change: Callable[[Declared], Declared]) -> Declared:
    """Change some of what is declared; return what was declared before."""
    global _current
    before = declared()
    with _lock:
        _current = change(before)
    return before


def declared() -> Declared:
    """Return what is declared. Cheap, and raises nothing.

    As long as nothing called declare(), that is what the TOML file that OTEL_SPECDECODE_DECLARATION names says, with
    declare()'s arguments as keys and paths relative to its folder. What it says is kept; one warning says if it is bad.
    """
    return _current if _current is not None else _first()


def _first() -> Declared:
    """Read what the environment says. Threads that come at once may all read it, and one of them tells what is bad."""
    global _current
    location, complaints = os.environ.get(DECLARATION), []
    made = Declared()
    try:
        if location:
            made = _made(**_read(Path(location)))
    except Exception as error:
        # Nothing but texts of our own: the file's may hold anything, its folder a user's name.
        reason = error if isinstance(error, _BadDeclarationError) else type(error).__name__
        complaints.append(f"the declaration that {DECLARATION} names is not used: {reason}")
    made, others = _with_run_of_environment(made)
    with _lock:
        if _current is not None:
            return _current
        _current = made
    _warn([*complaints, *others])
    return made


def _made(
    run_id: Any = None,
    draft_length: Any = None,
    stop_sequences: Any = (),
    sampling: Any = None,
    gate_policy: Any = None,
    guard_policy: Any = None,
    side_load_note: Any = None,
) -> Declared:
    return Declared(
        run_id=None if run_id is None else _text("run_id", run_id),
        draft_length=_draft_length(draft_length),
        stop_sequences=_stop_sequences(stop_sequences),
        sampling=_sampling(sampling),
        gate_policy=_policy("gate_policy", gate_policy),
        guard_policy=_policy("guard_policy", guard_policy),
        side_load_note=None if side_load_note is None else _text("side_load_note", side_load_note),
    )


def _with_run_of_environment(made: Declared) -> tuple[Declared, list[str]]:
    """Add the environment's run where there is none; return also what is wrong with that."""
    value = os.environ.get(RUN_ID)
    if not value or made.run_id is not None:
        return made, []
    try:
        return replace(made, run_id=_text(RUN_ID, value)), []
    except ValueError as error:
        return made, [f"{error}; there is no run id"]


def _warn(complaints: Iterable[str]) -> None:
    for complaint in complaints:
        _logger.warning("%s", complaint)


class _BadDeclarationError(ValueError):
    """What was declared is not as it should be. The text says what to do, and holds no folder."""


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(_content(path.expanduser()).decode())
    except OSError as error:
        raise _BadDeclarationError(f"{path.name} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise _BadDeclarationError(f"{path.name} is not a TOML file in UTF-8") from None
    unknown = content.keys() - Declared.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Declared.__dataclass_fields__)
        raise _BadDeclarationError(f"{path.name} has {len(unknown)} unknown keys; known are {known}")
    for key in ("gate_policy", "guard_policy"):
        policy = content.get(key)
        if isinstance(policy, str) and not _HASH.fullmatch(policy):
            content[key] = path.expanduser().parent / Path(policy).expanduser()
    return content


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_TEXT or not value.isprintable():
        raise _BadDeclarationError(f"{name} must be a printable text of 1 to {_MOST_TEXT} characters on one line")
    return value


def _draft_length(value: Any) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= _MOST_DRAFT_LENGTH):
        return value
    raise _BadDeclarationError(f"draft_length must be a whole number from 0 to {_MOST_DRAFT_LENGTH}")


def _stop_sequences(values: Any) -> tuple[str, ...]:
    """Return the texts in order. They may hold line ends, which end many an answer."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise _BadDeclarationError("stop_sequences must be a list of texts, not one text")
    found = list(values)
    for each in found:
        if not isinstance(each, str) or not 0 < len(each) <= _MOST_TEXT or not _is_unicode(each):
            raise _BadDeclarationError(f"each of stop_sequences must be a text of 1 to {_MOST_TEXT} characters")
    if len(found) > _MOST_ENTRIES:
        raise _BadDeclarationError(f"stop_sequences must be at most {_MOST_ENTRIES} texts")
    return tuple(sorted(set(found)))


def _is_unicode(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def _sampling(values: Any) -> tuple[Setting, ...]:
    if values is None:
        return ()
    if not isinstance(values, Mapping) or len(values) > _MOST_ENTRIES:
        raise _BadDeclarationError(f"sampling must be a mapping of at most {_MOST_ENTRIES} parameters")
    found: list[Setting] = []
    for name, value in values.items():
        if value is None:
            continue
        _text("each name in sampling", name)
        if isinstance(value, str):
            _text(f"sampling's {name}", value)
        try:
            canonical_json(value)
        except ValueError as error:
            raise _BadDeclarationError(f"sampling's {name} {error}") from None
        if not isinstance(value, (str, int, float, bool)):
            raise _BadDeclarationError(f"sampling's {name} must be a text, a number, true or false")
        found.append((name, value))
    return tuple(sorted(found, key=lambda setting: setting[0]))


def _policy(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _HASH.fullmatch(value)):
        return value
    if isinstance(value, Mapping):
        try:
            return f"sha256:{sha256_of(value)}"
        except ValueError as error:
            raise _BadDeclarationError(f"{name} {error}") from None
    if not isinstance(value, (str, os.PathLike)):
        raise _BadDeclarationError(f"{name} must be a file's path or a mapping")
    path = Path(value)
    try:
        return f"sha256:{hashlib.sha256(_content(path)).hexdigest()}"
    except OSError as error:
        raise _BadDeclarationError(f"{name}: {path.name} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise _BadDeclarationError(f"{name}: {path.name} {error}") from None


def _content(path: Path) -> bytes:
    with open_plain(path) as file:
        content = file.read(_MOST_FILE_BYTES + 1)
    if len(content) > _MOST_FILE_BYTES:
        raise ValueError(f"is larger than {_MOST_FILE_BYTES} bytes")
    return content
