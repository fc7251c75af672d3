"""The state of the machine, which decides for all scopes at once."""

from __future__ import annotations

from dataclasses import dataclass

from otel_specdecode.generation.judgement import context_tier
from otel_specdecode.generation.request import Request
from otel_specdecode.guard.baseline import Conditions, band_of
from otel_specdecode.guard.breaker import Breaker, Change
from otel_specdecode.guard.ladder import Rung
from otel_specdecode.guard.policy import Policy
from otel_specdecode.guard.windows import Closed, Values

UNKNOWN = "unknown"
HOT = frozenset(("serious", "critical"))
SWAP_NOISE = 1 << 20
"""Bytes by which swap in use moves without growing."""

LONGEST_GAP = 30.0
"""Seconds between two readings, above which they do not follow each other."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """What was read of the machine.

    Attributes:
        power_mode: `low`, `automatic`, `high` or `unknown`.
        thermal_state: `nominal`, `fair`, `serious`, `critical` or `unknown`.
        memory_pressure: `normal`, `warn`, `critical` or `unknown`.
        swap_used: Bytes, None if unknown.
    """

    power_mode: str = UNKNOWN
    thermal_state: str = UNKNOWN
    memory_pressure: str = UNKNOWN
    swap_used: int | None = None


class Machine:
    """Watches the machine for all scopes. Not for several threads.

    Attributes:
        breaker: Its rung counts for every request, beside that of the request's own lane.
    """

    def __init__(self, policy: Policy, rungs: tuple[Rung, ...], now: float) -> None:
        """Begin with a machine of which nothing is known.

        Args:
            policy: The rules.
            rungs: From full speculation to none.
            now: Clock reading in seconds.
        """
        self.breaker = Breaker(policy, rungs, now)
        self._state = MachineState()
        self._settles = policy.probe.cool_down
        self._critical_since: float | None = None
        self._hot_since: float | None = None
        self._swap_from: int | None = None
        self._swap_most = 0
        self._grew = now
        self._canaries = 0
        self._read = now

    @property
    def is_pressed(self) -> bool:
        """Whether it is no time to load more: nothing probes then."""
        return self.breaker.state != "closed"

    def take(self, state: MachineState, running: int, now: float) -> Change | None:
        """Take its state.

        Args:
            state: As read now.
            running: Requests that run.
            now: Clock reading in seconds.
        """
        self._state = state
        values: Values = {}
        if not 0 <= now - self._read <= LONGEST_GAP:
            self._critical_since = self._hot_since = None
        self._read = now
        self._critical_since = _since(state.memory_pressure == "critical", self._critical_since, now)
        self._hot_since = _since(state.thermal_state in HOT, self._hot_since, now)
        if state.memory_pressure != UNKNOWN:
            values["memory_pressure"] = 0.0 if self._critical_since is None else now - self._critical_since
        if state.thermal_state != UNKNOWN:
            values["thermal_state"] = 0.0 if self._hot_since is None else now - self._hot_since
        if state.swap_used is not None:
            growth = self._swap_growth(state.swap_used, now)
            if running:
                values["swap_growth"] = float(growth)
        return self.breaker.window("machine", Closed(values, 1, 0.0), now)

    def canary(self, passed: bool, now: float) -> Change | None:
        """Take the result of a quality canary."""
        self._canaries = 0 if passed else self._canaries + 1
        values: Values = {"quality_canary": float(self._canaries)}
        return self.breaker.window("failures", Closed(values, max(self._canaries, 1), 0.0), now)

    def conditions(self, request: Request, input_tokens: int | None, running: int) -> Conditions:
        """Return what a baseline must be of, to be comparable with a request that runs now."""
        tier = context_tier(input_tokens)
        state = self._state
        return Conditions(
            request.provider,
            request.model,
            request.operation,
            tier,
            band_of(running),
            state.power_mode,
            state.thermal_state,
        )

    def _swap_growth(self, used: int, now: float) -> int:
        """Return the growth since the start, or since it last stood still for as long as a cool-down."""
        if self._swap_from is None or used < self._swap_from:
            self._swap_from = self._swap_most = used
            self._grew = now
        if used > self._swap_most + SWAP_NOISE:
            self._swap_most, self._grew = used, now
        elif now - self._grew >= self._settles:
            self._swap_from = self._swap_most = used
        return used - self._swap_from


def _since(is_so: bool, since: float | None, now: float) -> float | None:
    if not is_so:
        return None
    return now if since is None else since
