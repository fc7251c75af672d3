"""A policy: what is watched, when it trips, what happens then, and how speculation comes back.

The classes are the schema of the policy file: msgspec reads them from TOML and writes their JSON schema. The bounds
of the default policy are in thresholds.toml.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

from otel_specdecode.thresholds import thresholds

try:
    from msgspec import UNSET, Meta, Struct, UnsetType, field, json
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'the guard needs its extra [guard]: pip install "otel-specdecode[guard]"', name=error.name
    ) from error

Mode = Literal["observe_only", "enforce"]
ScopeKind = Literal["process", "tenant", "session"]

Measure = Literal[
    "break_even",
    "accept_rate",
    "all_rejected",
    "time_per_token",
    "time_to_first_token",
    "speedup",
    "service_speedup",
    "queue",
    "nothing_proposed",
    "out_of_memory",
    "verifier_error",
    "quality_canary",
    "swap_growth",
    "memory_pressure",
    "thermal_state",
]
"""What a trigger reads; MEANING says what each is."""

MEANING: Final[Mapping[Measure, str]] = {
    "break_even": "Time that autoregressive decoding takes for the same tokens, over that of the rounds. Of rounds.",
    "accept_rate": "Accepted over compared tokens. Of rounds.",
    "all_rejected": "Share of finished rounds without one accepted token. Of rounds.",
    "time_per_token": "95th percentile of the time per token of requests, each over the baseline's 95th percentile.",
    "time_to_first_token": "Median of the time to the first token of requests, each over the baseline's median; less "
    "what the different lengths of so many prompts do to a median by chance.",
    "speedup": "Median of the baseline's median time per token over that of each request.",
    "service_speedup": "Output tokens a second while several requests run at once and speculate, over the "
    "baseline's with as many at once.",
    "queue": "95th percentile of the seconds that requests waited.",
    "nothing_proposed": "Share of requests in which the draft proposed nothing, of those in which it was asked. Not of "
    "prompt lookup, which costs nothing then.",
    "out_of_memory": "Requests that ran out of memory, with none between them that went well.",
    "verifier_error": "Requests that ended in an error of the engine, with none between them that went well.",
    "quality_canary": "Quality canaries in a row that failed.",
    "swap_growth": "Bytes of swap in use above those at the start, or since they last stood still for a cool-down, "
    "while requests run. Of the machine.",
    "memory_pressure": "Seconds in a row that memory pressure is critical. Of the machine.",
    "thermal_state": "Seconds in a row that the thermal state is serious or critical. Of the machine.",
}

OF_ROUNDS: Final = frozenset(("break_even", "accept_rate", "all_rejected"))
OF_REQUESTS: Final = frozenset(
    ("time_per_token", "time_to_first_token", "speedup", "service_speedup", "queue", "nothing_proposed")
)
OF_FAILURES: Final = frozenset(("out_of_memory", "verifier_error", "quality_canary"))
OF_THE_MACHINE: Final = frozenset(("swap_growth", "memory_pressure", "thermal_state"))
RELATIVE: Final = frozenset(("break_even", "time_per_token", "time_to_first_token", "speedup", "service_speedup"))
"""Measures that need a baseline: without one they are not known, and trip nothing."""

BY_LENGTH: Final = frozenset(("accept_rate",))
"""Measures whose bound may depend on the draft length."""

YIELDING: Final = frozenset(("accept_rate", "all_rejected"))
"""Measures that say nothing where the same rounds are known to pay."""

Action = Literal["streams", "down", "autoregressive", "unload"]
"""What a trigger does: fewer speculative streams; one rung down; no speculation; none, and the draft's memory freed."""

Positive = Annotated[float, Meta(gt=0, lt=1e15)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Length = Annotated[int, Meta(ge=1, le=64)]
Bound = float | dict[str, float]
"""One bound, or one for each draft length: keys `1` to `15`, and `16+` for all longer ones."""


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a policy; a key that it does not have is an error."""


class Scope(Table, frozen=True, kw_only=True):
    """For whom one decision counts.

    Attributes:
        by: The process, each tenant, or each session. A request that names none counts for the process.
        most: Scopes that are kept; of more, the one that was used longest ago is forgotten, unless it is not closed.
    """

    by: ScopeKind = "process"
    most: Count = 1000


class Windows(Table, frozen=True, kw_only=True):
    """What a measure is made of.

    Attributes:
        rounds: Rounds that close a window of rounds.
        requests: Requests that close a window of requests.
        max_age: Seconds after which what an unfinished window holds is forgotten.
    """

    rounds: Count = 200
    requests: Count = 20
    max_age: Positive = 86_400.0


class Trigger(Table, frozen=True, kw_only=True):
    """One rule.

    Attributes:
        measure: What it reads; its name by default.
        below: It is broken below this.
        above: It is broken above this. Of failures in a row: from this number on.
        windows: Disjoint windows in a row in which it must be broken.
        seconds: From the beginning of the first of them to the end of the last, at least.
        action: What happens when it trips.
    """

    measure: Measure | UnsetType = UNSET
    below: Bound | UnsetType = UNSET
    above: Bound | UnsetType = UNSET
    windows: Count = 1
    seconds: Annotated[float, Meta(ge=0, lt=1e15)] = 0.0
    action: Action = "autoregressive"


class Ladder(Table, frozen=True, kw_only=True):
    """The rungs from full speculation to none.

    Attributes:
        streams: Speculative streams at once, on the rung that limits them.
        lengths: Draft lengths, longest first; those below what a request asks for are its rungs.
    """

    streams: Count = 1
    lengths: tuple[Length, ...] = (6, 4, 3, 2)


class Probe(Table, frozen=True, kw_only=True):
    """How speculation comes back.

    Attributes:
        cool_down: Seconds without speculation before the first probe; each probe that fails doubles them.
        longest_cool_down: Seconds at which the doubling ends.
        share: Share of sessions, or of requests without one, that probe.
        windows: Windows in a row in which nothing may be broken, for speculation to come back, and for a longer draft.
        hysteresis: By how much of itself a bound must be kept then.
        dwell: Seconds that a rung is kept at least, unless a trigger asks for no speculation at all.
    """

    cool_down: Positive = 300.0
    longest_cool_down: Positive = 14_400.0
    share: Annotated[float, Meta(gt=0, le=1)] = 0.1
    windows: Count = 2
    hysteresis: Share = 0.05
    dwell: Positive = 120.0


class Baseline(Table, frozen=True, kw_only=True):
    """What relative measures are held against.

    Attributes:
        source: `control`: requests of this process that are made to run autoregressively; `file`: numbers of before.
        file: A file that another process wrote by its key `write`, relative to the policy's folder.
        write: A file that this process writes what its requests without a draft take to, for processes that speculate;
            relative to the policy's folder. It is written every few seconds while there is something new.
        share: Share of sessions, or of requests without one, that are control.
        most_share: The most that the share grows to where there are too few.
        requests: Requests of a model and tier within `max_age` that a baseline is made of.
        max_age: Seconds after which a request counts no more.
    """

    source: Literal["control", "file"] = "control"
    file: str | None = None
    write: str | None = None
    share: Share = 0.02
    most_share: Share = 0.2
    requests: Count = 20
    max_age: Positive = 86_400.0


class Budget(Table, frozen=True, kw_only=True):
    """What one tenant may take of what all share; without a number, as much as it likes.

    Attributes:
        share_of_streams: Share of the speculative streams, where there are others.
        draft_tokens_per_minute: Proposed tokens a minute.
    """

    share_of_streams: Annotated[float, Meta(gt=0, le=1)] | None = None
    draft_tokens_per_minute: Count | None = None


class DegradedSLO(Table, frozen=True, kw_only=True):
    """What is promised while the guard keeps requests from speculation, for panels and alerts.

    Attributes:
        time_to_first_token_p95: Seconds to the first token, at most, for 95 of 100 requests.
        time_per_token_p95: Seconds a token, at most, for 95 of 100 requests.
        tokens_per_second: Output tokens a second of the service, at least.
    """

    time_to_first_token_p95: Positive | None = None
    time_per_token_p95: Positive | None = None
    tokens_per_second: Positive | None = None


class Audit(Table, frozen=True, kw_only=True):
    """The trail of transitions.

    Attributes:
        folder: Folder of the files, one a process, relative to the policy's; without it there is no file.
        most_bytes: Size at which a file is closed and a new one begun.
        files: Closed files that are kept of each process.
        state: Whether state is saved there at each transition, and restored by the next process.
    """

    folder: str | None = None
    most_bytes: Annotated[int, Meta(ge=4096, le=1_000_000_000_000)] = 10_000_000
    files: Count = 5
    state: bool = False


def default_triggers() -> dict[str, Trigger]:
    """Return the triggers of the default policy."""
    found: dict[str, dict[str, Any]] = thresholds()["guard"]["triggers"]
    bounds = {"warning": thresholds()["accept_rate"]["warning"], "critical": thresholds()["accept_rate"]["critical"]}
    return {
        name: Trigger(**{key: bounds.get(value, value) if key == "below" else value for key, value in table.items()})
        for name, table in found.items()
    }


VERSIONS: Final = (1,)
"""Versions of the format that can be read."""


class Policy(Table, frozen=True, kw_only=True):
    """A policy.

    Attributes:
        version: The format's.
        mode: `observe_only` decides and tells, and changes no request.
        on_error: What a policy that cannot be used does to a program without code of its own: `refuse` stops it,
            `disable` goes on without guard.
        flag_file: A file that switches speculation off while its first line is `off`; relative to the policy's folder.
        canary_file: A file to whose end each quality canary adds a line, `pass` or `fail`; likewise.
        scope: For whom one decision counts.
        windows: What a measure is made of.
        triggers: The rules, by name.
        ladder: The rungs.
        probe: How speculation comes back.
        baseline: What relative measures are held against.
        budget: What one tenant may take.
        degraded_slo: What is promised meanwhile.
        audit: The trail.
    """

    version: Literal[1] = 1
    mode: Mode = "observe_only"
    on_error: Literal["refuse", "disable"] = "refuse"
    flag_file: str | None = None
    canary_file: str | None = None
    scope: Scope = field(default_factory=Scope)
    windows: Windows = field(default_factory=Windows)
    triggers: dict[str, Trigger] = field(default_factory=default_triggers)
    ladder: Ladder = field(default_factory=Ladder)
    probe: Probe = field(default_factory=Probe)
    baseline: Baseline = field(default_factory=Baseline)
    budget: Budget = field(default_factory=Budget)
    degraded_slo: DegradedSLO = field(default_factory=DegradedSLO)
    audit: Audit = field(default_factory=Audit)

    @property
    def digest(self) -> str:
        """`sha256:` and the digest of what it says, whatever its file looks like."""
        return "sha256:" + hashlib.sha256(json.encode(self, order="sorted")).hexdigest()


MEASURES: Final[tuple[str, ...]] = get_args(Measure)
