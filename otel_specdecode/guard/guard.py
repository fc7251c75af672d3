"""The guard of a process: decides about each request before its engine is called, and learns from what came of it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import get_args

from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.plan import AS_ASKED, Ask, Plan, Who
from otel_specdecode.generation.record import Record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.generation.transition import Lane, State
from otel_specdecode.guard.baseline import Baseline, Conditions, Usual
from otel_specdecode.guard.breaker import Breaker, Change, Kind
from otel_specdecode.guard.clocks import Clocks, Steady
from otel_specdecode.guard.comparing import Comparing
from otel_specdecode.guard.deciding import CONTROL, PROBE, Decider
from otel_specdecode.guard.flag import FeatureFlag
from otel_specdecode.guard.ladder import Rung, rungs_of
from otel_specdecode.guard.lanes import Lanes, LaneState, Names, proposed_of
from otel_specdecode.guard.machine import Machine, MachineState
from otel_specdecode.guard.meeting import Met
from otel_specdecode.guard.policy import Policy
from otel_specdecode.guard.streams import Streams
from otel_specdecode.guard.telling import Tell, TellBaseline, Telling, Unloaded
from otel_specdecode.guard.windows import Closed, are_passes

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


class Guard:
    """Plans requests by a policy. Every method may be called on any thread and raises nothing.

    None waits for anything but machine() and canary(), which may have a draft's memory freed.

    Attributes:
        policy: What it goes by.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        tell: Iterable[Tell] = (),
        tell_baseline: Iterable[TellBaseline] = (),
        fixed: Mapping[Conditions, Usual] | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """Begin with full speculation for everybody.

        Args:
            policy: What it goes by.
            tell: Called with each transition, on any thread, maybe that of a request: it may not wait.
            tell_baseline: Called likewise each time that a scope loses its baseline or finds one.
            fixed: A baseline of before, in place of the control cohort.
            clocks: Where time comes from.
        """
        self.policy = policy
        self._clocks = clocks or Clocks()
        self._steady = Steady(self._clocks.steady)
        self._telling = Telling(policy, tell, tell_baseline, self._clocks.wall)
        self._digest = policy.digest
        self._observes = policy.mode == "observe_only"
        self._lighter = False
        now = self._steady.now()
        self._baseline = Baseline(policy.baseline.requests, policy.baseline.max_age, fixed)
        self._measured = Baseline(policy.baseline.requests, policy.baseline.max_age)
        self._comparing = Comparing(policy, self._baseline, self._telling)
        self._lanes = Lanes(policy.scope.most)
        self._machine = Machine(policy, self._rungs(None), now)
        self._streams = Streams(policy.budget, policy.scope.most, self._clocks.steady, self._steady)
        self._flag = FeatureFlag()
        self._decider = Decider(policy, self._flag, self._machine, self._streams, self._baseline)
        self._met = Met()
        self._lock = threading.RLock()
        """Of the same thread again, since a signal's handler or a garbage collection may collect metrics in between."""
        _guards.add(self)

    # Before a request

    def plan(self, ask: Ask) -> Plan:
        """Decide about one request."""
        try:
            with self._lock:
                plan = self._plan(ask, self._steady.now())
            self._telling.deliver()
            return plan
        except Exception as error:
            report_fault("the guard could not plan a request, which runs as asked", error)
            return AS_ASKED

    def _plan(self, ask: Ask, now: float) -> Plan:
        self._streams.settle()
        if not ask.speculates:
            return Plan(permit=self._streams.begin(None, speculates=False, now=now), as_asked=True)
        names = self._lane_of(ask.who, ask.provider, ask.model, ask.method)
        lane = self._lanes.find(names, ask.draft_length, self._new_lane, now)
        if ask.draft_length != lane.asked:
            self._lengthen(lane, ask.draft_length)
        change = lane.breaker.tick(now)
        if change is not None:
            self._telling.add(lane.lane, change)
        tenant = ask.who.tenant
        if self._observes:
            return Plan(permit=self._streams.begin(tenant, speculates=True, now=now), as_asked=True)
        met = lane.conditions or self._met.latest(ask)
        decision = self._decider.decide(ask, lane, met, now)
        permit = self._streams.begin(tenant, speculates=decision[0] != 0, now=now)
        return Plan(*decision, lane.breaker.changes, permit)

    # While it runs, and after

    def progress(self, request: Request, who: Who, delta: Delta, input_tokens: int | None) -> None:
        """Take what a stretch of a request added."""
        try:
            with self._lock:
                self._progress(request, who, delta, input_tokens, self._steady.now())
            self._telling.deliver()
        except Exception as error:
            report_fault("the guard could not take what a request did", error)

    def _progress(self, request: Request, who: Who, delta: Delta, input_tokens: int | None, now: float) -> None:
        if not request.decodes or request.batch_size is not None:
            return
        # The tokens came while it ran: what ended meanwhile, itself included, is only taken back with the next plan.
        self._streams.service.add(delta.counts.tokens, now)
        conditions = self._machine.conditions(request, input_tokens, self._streams.service.running)
        self._met.meet(request, conditions)
        if request.mode == "autoregressive":
            if are_passes(delta.pass_times):
                for kept in self._baselines(request):
                    kept.add_passes(conditions, len(delta.pass_times), sum(delta.pass_times) / 1e9, now)
            return
        if who.tenant is not None:
            self._streams.budgets.spend(who.tenant, delta.counts.proposed, now)
        lane = self._lanes.get(self._lane_of(who, request.provider, request.model, request.method))
        if lane is None:
            return
        lane.conditions = conditions
        self._met.speculate(request, conditions)
        if not self._counts(request, lane.breaker):
            return
        windows = self.policy.windows
        if lane.rounds.is_stale(now, windows.max_age):
            lane.forget_rounds()
        lane.rounds.add(delta.counts, delta.pass_times, request.draft_max_tokens, conditions, now)
        if lane.rounds.rounds >= windows.rounds:
            closed = lane.rounds.close(self._baseline, now)
            lane.forget_rounds()
            self._judge(lane, "rounds", closed, now)

    def finish(self, record: Record, who: Who, trace_id: str | None = None) -> None:
        """Take a finished request.

        Args:
            record: The request.
            who: On whose behalf.
            trace_id: Its trace, None if it is not sampled.
        """
        try:
            with self._lock:
                self._finish(record, who, trace_id, self._steady.now())
            self._telling.deliver()
        except Exception as error:
            report_fault("the guard could not take a finished request", error)

    def _finish(self, record: Record, who: Who, trace_id: str | None, now: float) -> None:
        request, timing = record.request, record.timing
        if not request.decodes or request.batch_size is not None:
            return
        conditions = self._met.end(request)
        if conditions is None:
            conditions = self._machine.conditions(request, record.facts.input_tokens, self._streams.service.running)
        failed = record.ending.kind == "error"
        if request.mode == "autoregressive":
            for kept in () if failed else self._baselines(request):
                kept.add_request(conditions, timing.time_per_token, timing.time_to_first_token, now)
            return
        lane = self._lanes.get(self._lane_of(who, request.provider, request.model, request.method))
        if lane is None:
            return
        if not self._counts(request, lane.breaker):
            return
        lane.trace_id = trace_id or lane.trace_id
        failures = lane.failures.take(record, always=lane.breaker.state != "closed")
        if failures is not None:
            self._judge(lane, "failures", failures, now)
            if not self._counts(request, lane.breaker):
                return
        if failed:
            return
        windows = self.policy.windows
        if lane.requests.is_stale(now, windows.max_age):
            lane.forget_requests(self._streams.service.mark())
        lane.requests.add(
            conditions,
            self._baseline,
            now,
            proposed=proposed_of(record),
            queued=request.queued,
            time_per_token=timing.time_per_token,
            time_to_first_token=timing.time_to_first_token,
        )
        if lane.requests.requests >= windows.requests:
            speedup = self._streams.service.speedup(lane.mark, self._baseline.fixed_output(conditions))
            closed = lane.requests.close(self._baseline, speedup)
            self._comparing.take(lane, conditions, now)
            lane.forget_requests(self._streams.service.mark())
            self._judge(lane, "requests", closed, now)

    def machine(self, state: MachineState) -> None:
        """Take the state of the machine, every few seconds."""
        try:
            with self._lock:
                now = self._steady.now()
                self._streams.settle()
                change = self._machine.take(state, self._streams.service.running, now)
                if change is not None:
                    self._telling.add(Lane(), change)
            self._telling.deliver()
            self._telling.free()
        except Exception as error:
            report_fault("the guard could not take the state of the machine", error)

    def canary(self, passed: bool) -> None:
        """Take the result of a quality canary: whether a known prompt got the answer that it should."""
        try:
            with self._lock:
                change = self._machine.canary(passed, self._steady.now())
                if change is not None:
                    self._telling.add(Lane(), change)
            self._telling.deliver()
            self._telling.free()
        except Exception as error:
            report_fault("the guard could not take a canary's result", error)

    # The feature flag, the draft's memory, what is known

    @property
    def on(self) -> bool:
        """Whether speculation is switched on: by switch(), else by what flag() was told last."""
        return self._flag.on

    def switch(self, on: bool | None) -> None:
        """Switch speculation on or off, whatever flag() is told; None leaves it to that."""
        self._switch(lambda: self._flag.switch(on))

    def flag(self, on: bool) -> None:
        """Take what the flag file or the environment says."""
        self._switch(lambda: self._flag.say(on))

    def unload_with(self, unload: Callable[[], None], *, lighter: bool) -> None:
        """Free a draft's memory with a function, which makes that a rung.

        Args:
            unload: Called by the next machine() or canary() after the rung was entered, never while a request waits.
            lighter: Whether there is a lighter draft too.
        """
        with self._lock:
            self._telling.unload_with(unload)
            self._lighter = self._lighter or lighter
            self._machine.breaker.extend(self._rungs(None))
            for lane in self._lanes.all():
                lane.breaker.extend(self._rungs(lane.asked))

    @property
    def unloaded(self) -> Unloaded:
        """How often it was decided to free the drafts' memory, and why the last time."""
        return self._telling.unloaded

    def scopes(self) -> dict[State, int]:
        """Return how many scopes are in each state, the machine among them where it is not closed."""
        found = dict.fromkeys(get_args(State), 0)
        with self._lock:
            for lane in self._lanes.all():
                found[lane.breaker.state] += 1
            if self._machine.breaker.state != "closed":
                found[self._machine.breaker.state] += 1
        return found

    def without_baseline(self) -> int:
        """Return how many scopes' last requests could not be compared with any without a draft."""
        with self._lock:
            return self._comparing.without_baseline(self._lanes.all(), self._steady.now())

    def measured(self) -> dict[Conditions, Usual]:
        """Return what requests take that asked for no draft, as a baseline for processes that speculate."""
        with self._lock:
            now = self._steady.now()
            return {
                each: replace(usual, tokens_per_second=self._streams.service.tokens_per_second(each.band))
                for each, usual in self._measured.all(now).items()
            }

    def saved(self) -> dict[str, object]:
        """Return what a restart must not forget: where speculation is not as asked."""
        with self._lock:
            now = self._steady.now()
            return {
                "policy": self._digest,
                "machine": self._machine.breaker.saved(now),
                "lanes": [lane.saved(now) for lane in self._lanes.all() if lane.breaker.state != "closed"],
            }

    def restore(self, saved: Mapping[str, object]) -> bool:
        """Go on where a process before ended; return whether that was possible. Another policy's state is not taken."""
        try:
            if saved.get("policy") != self._digest:
                return False
            with self._lock:
                now = self._steady.now()
                machine = saved.get("machine")
                Breaker(self.policy, self._rungs(None), now).restore(machine, now)
                self._lanes.restore(saved.get("lanes"), self._new_lane, now)
                self._machine.breaker.restore(machine, now)
            return True
        except Exception as error:
            report_fault("the guard's saved state could not be used", error)
            return False

    def renew_in_child(self) -> None:
        """In the child of a fork: nothing of the parent's runs here. What was decided and learned stays."""
        self._lock = threading.RLock()
        self._telling.renew()
        self._streams.forget_all()
        self._met.forget_running()
        for lane in self._lanes.all():
            lane.forget({})

    # Inside

    def _switch(self, turn: Callable[[], Change | None]) -> None:
        with self._lock:
            change = turn()
            if change is not None:
                self._telling.add(Lane(), change)
        self._telling.deliver()

    def _judge(self, lane: LaneState, kind: Kind, closed: Closed, now: float) -> None:
        """Hand a full window to the breaker. After a change all windows begin anew: they were of another rung."""
        if closed.suspect:
            lane.suspects.add(kind)
        else:
            lane.suspects.discard(kind)
        change = lane.breaker.window(kind, closed, now)
        if change is not None:
            self._telling.add(lane.lane, change, lane.trace_id)
            lane.forget(self._streams.service.mark())

    def _counts(self, request: Request, breaker: Breaker) -> bool:
        """Return whether a speculative request was decided by where the breaker is now."""
        if self._observes:
            return True
        wanted = PROBE if breaker.state == "probing" else "normal"
        return request.decided == breaker.changes and request.cohort == wanted

    def _baselines(self, request: Request) -> Iterable[Baseline]:
        if request.cohort == CONTROL:
            yield self._baseline
        elif request.requested_mode == "autoregressive" and request.cohort == "normal":
            yield self._measured

    def _lane_of(self, who: Who, provider: str, model: str | None, method: str) -> Names:
        by = self.policy.scope.by
        key = who.tenant if by == "tenant" else who.session if by == "session" else None
        return ("process" if key is None else by, key, provider, model, method)

    def _lengthen(self, lane: LaneState, asked: int | None) -> None:
        """Have a lane's ladder be that of the longest draft that was asked for."""
        if lane.asked is not None and (asked is None or asked > lane.asked):
            lane.asked = asked
            lane.breaker.extend(self._rungs(asked))

    def _new_lane(self, lane: Lane, asked: int | None, now: float) -> LaneState:
        return LaneState(lane, asked, Breaker(self.policy, self._rungs(asked), now))

    def _rungs(self, asked: int | None) -> tuple[Rung, ...]:
        return rungs_of(asked, self.policy.ladder, lighter=self._lighter, unloads=self._telling.unloads)


def _renew_all() -> None:
    for guard in list(_guards):
        guard.renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
