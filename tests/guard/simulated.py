"""Traffic of a service that speculates, with the times of a real machine, on a clock that is told."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.plan import NOBODY, Ask, Plan, Who
from otel_specdecode.generation.record import Ending, Facts, Record, Timing
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.clocks import Clocks
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.policy import Policy

START_NS = 1_800_000_000_000_000_000


@dataclass
class Clock:
    """A clock that goes on when told."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return START_NS + int(self.seconds * 1e9)


@dataclass
class World:
    """What requests meet.

    Attributes:
        target: Seconds of a target pass.
        draft: Seconds of one draft pass.
        accept: Chance that a proposed token is the target's, as long as those before it were.
        noise: Spread of each duration, as a share.
        first: Seconds to the first token.
    """

    target: float = 0.026
    draft: float = 0.003
    accept: float = 0.7
    noise: float = 0.05
    first: float = 0.3


@dataclass
class Service:
    """One service under a guard, a request at a time."""

    policy: Policy
    world: World = field(default_factory=World)
    asked: int = 4
    method: str = "draft_model"
    seed: int = 1
    clock: Clock = field(default_factory=Clock)
    told: list[Transition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.guard = Guard(self.policy, tell=[self.told.append], clocks=Clocks(self.clock, self.clock.wall))

    def request(self, who: Who = NOBODY, tokens: int = 128, pause: float = 1.0, queued: float | None = None) -> Plan:
        """Serve one request from its plan to its record; return the plan."""
        ask = Ask("mlx", "target", self.method, self.asked, "draft", "chat", who)  # type: ignore[arg-type]
        plan = self.guard.plan(ask)
        length = plan.length(self.asked)
        speculates = length != 0
        request = Request(
            "chat",
            "mlx",
            "target",
            mode="speculative" if speculates else "autoregressive",
            requested_mode="speculative",
            method=self.method,  # type: ignore[arg-type]
            draft_max_tokens=length,
            cohort=plan.cohort,
            fallback_reason=plan.fallback_reason,
            queued=queued,
            decided=plan.decided,
        )
        self.clock.seconds += self.world.first
        total, timed, seconds = Counts(tokens=1, prefill_tokens=1), 0, 0.0
        while total.tokens < tokens:
            delta = self._second(length or 0)
            total.add(delta.counts)
            spent = sum(delta.pass_times) / 1e9
            timed, seconds = timed + delta.counts.tokens, seconds + spent
            self.clock.seconds += spent
            self.guard.progress(request, who, delta, 100)
        timing = Timing(
            seconds + self.world.first,
            time_to_first_token=self._noisy(self.world.first),
            decode=seconds,
            consumer=0.0,
            time_per_token=seconds / timed,
        )
        record = Record(request, total, timing, Facts(100), Ending("complete", 0, "length"))
        if plan.permit is not None:
            plan.permit.release()
        self.guard.finish(record, who, "0" * 31 + "1")
        self.clock.seconds += pause
        return plan

    def _second(self, length: int) -> Delta:
        counts, times = Counts(), []
        while sum(times) < 1e9:
            if not length:
                counts.plain_passes += 1
                counts.tokens += 1
                times.append(self._noisy(self.world.target) * 1e9)
                continue
            accepted = 0
            while accepted < length and self.random.random() < self.world.accept:
                accepted += 1
            counts.add_round(length, accepted + 1, True)
            counts.tokens += accepted + 1
            times.append(self._noisy(self.world.target + length * self.world.draft) * 1e9)
        return Delta(counts, [int(each) for each in times])

    def _noisy(self, seconds: float) -> float:
        return max(seconds * self.random.gauss(1, self.world.noise), 1e-6)
