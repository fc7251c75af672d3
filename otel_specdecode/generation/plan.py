"""What is decided of a request before its engine is called: whether it may speculate, how far, and why."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from otel_specdecode.generation.record import Record
from otel_specdecode.generation.request import Cohort, Method, Operation, Request
from otel_specdecode.generation.tally import Delta


class Who(NamedTuple):
    """On whose behalf a request runs; None where its context does not tell."""

    tenant: str | None = None
    session: str | None = None


NOBODY = Who()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as far as it is known before its engine is called.

    Attributes:
        provider: GenAI provider name of the engine.
        model: Target model as the caller knows it, None if unknown.
        method: What would propose tokens.
        draft_length: The draft length k that was asked for; None if the draft does not tell.
        draft_model: Draft model as the caller knows it, None without one or if unknown.
        operation: GenAI operation name.
        who: On whose behalf.
    """

    provider: str
    model: str | None
    method: Method
    draft_length: int | None
    draft_model: str | None = None
    operation: Operation = "text_completion"
    who: Who = NOBODY

    @property
    def speculates(self) -> bool:
        """Whether it asks for speculation."""
        return self.method != "none" and self.draft_length != 0


class Permit:
    """Leave to be one of the streams that speculate; given back once, at the latest when nobody holds it any more."""

    __slots__ = ("_held",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        """Take it.

        Args:
            give_back: Called once, on any thread, maybe inside garbage collection: it may take no lock.
        """
        self._held = [give_back]

    def release(self) -> None:
        """Give it back, unless it was: of several threads one pops the only element."""
        if not self._held:
            return
        try:
            give_back = self._held.pop()
        except IndexError:
            return
        give_back()

    __del__ = release


@dataclass(slots=True)
class Plan:
    """How a request is to run. Only keep_without() changes one; frozen, it would take four times as long to make.

    Attributes:
        draft_length: Most tokens that may be proposed at once; None: as asked for; 0: autoregressively.
        cohort: Why it runs as it does.
        fallback_reason: Why it may not speculate; None where it may.
        lighter: Whether the draft is to be the lighter one, where the caller gave one.
        decided: How often the decider had changed its mind until then, so that what comes of it can be told from what
            comes of later decisions.
        permit: Held while it runs; None where nobody counts.
        method: What would have proposed, of a plan that a program asked for itself: it may leave the draft away then,
            and its call tells no more of one. None where the call tells.
        as_asked: Whether nobody decided: the call is left as it is, and counted at most.
        who: For whom it was decided, of a plan that a program asked for itself; None where the call tells.
        unloads: How often drafts had been let go of until then, of such a plan; None where nobody counts.
    """

    draft_length: int | None = None
    cohort: Cohort = "normal"
    fallback_reason: str | None = None
    lighter: bool = False
    decided: int = field(default=0, compare=False)
    permit: Permit | None = field(default=None, compare=False, repr=False)
    method: Method | None = None
    as_asked: bool = field(default=False, compare=False)
    who: Who | None = field(default=None, compare=False, repr=False)
    unloads: int | None = field(default=None, compare=False, repr=False)

    @property
    def autoregressive(self) -> bool:
        """Whether no token may be proposed."""
        return self.draft_length == 0

    def length(self, asked: int | None) -> int | None:
        """Return the draft length of a request that asked for one; None where nobody limits an unknown one."""
        if self.draft_length is None or asked is None:
            return asked if self.draft_length is None else self.draft_length
        return min(asked, self.draft_length)

    def keep_without(self, reason: str | None) -> None:
        """Have the request run without its draft, which is no longer there, before its engine is called."""
        self.draft_length, self.lighter, self.as_asked = 0, False, False
        self.cohort, self.fallback_reason = "fallback", reason


AS_ASKED = Plan(as_asked=True)
"""The plan of a request that nobody decides about."""


class Planner(Protocol):
    """Who decides, and learns from what comes of it. No method raises or blocks."""

    def plan(self, ask: Ask) -> Plan:
        """Decide about one request; on the calling thread."""

    def progress(self, request: Request, who: Who, delta: Delta, input_tokens: int | None) -> None:
        """Take what a stretch of a request added; on the recording thread."""

    def finish(self, record: Record, who: Who, trace_id: str | None) -> None:
        """Take a finished request and its trace, None if that is not sampled; on the recording thread."""


def planned(request: Request, plan: Plan) -> Request:
    """Return a request as it runs under a plan."""
    if plan.who is not None:
        request = replace(request, who=plan.who)
    if plan.cohort == "bench":
        return replace(request, cohort=plan.cohort)
    if plan.method is not None and plan.autoregressive and request.method == "none" and request.decodes:
        request = replace(request, requested_mode="speculative", method=plan.method)
    elif plan.as_asked or request.mode == "autoregressive":
        return request
    length = plan.length(request.draft_max_tokens)
    if length != 0:
        return replace(request, draft_max_tokens=length, cohort=plan.cohort, decided=plan.decided)
    reason = plan.fallback_reason
    return replace(request, mode="autoregressive", draft_max_tokens=0, cohort=plan.cohort, fallback_reason=reason)


_planner: Planner | None = None


def plan_by(planner: Planner | None) -> None:
    """Have every request of this process planned from now on; None: run as asked."""
    global _planner
    _planner = planner


def planner() -> Planner | None:
    """Return who plans, None while nobody does."""
    return _planner


class Choice:
    """A plan that a program asked for itself, for the calls of a block; the blocks around it count again afterwards.

    Blocks need not end in the order in which they began, nor in the context in which they did: those of generators do
    as their readers please. So a block that ended is known as such wherever its choice is still seen.

    Attributes:
        taken: Whether a call ran by it.
    """

    __slots__ = ("_around", "_plan", "taken")

    def __init__(self, plan: Plan) -> None:
        """Have the calls of this context run by a plan from now on."""
        self.taken = False
        self._plan: Plan | None = plan
        self._around = _choice()
        _chosen.set(self)

    @property
    def is_here(self) -> bool:
        """Whether it began in this context."""
        seen = _chosen.get()
        while seen is not None and seen is not self:
            seen = seen._around
        return seen is not None

    def end(self) -> None:
        """Have no call run by it any more."""
        self._plan = None
        _chosen.set(_choice())

    def _innermost(self) -> Choice | None:
        """Return this one, or what is around it where it ended."""
        found: Choice | None = self
        while found is not None and found._plan is None:
            found = found._around
        return found


_chosen: ContextVar[Choice | None] = ContextVar("otel_specdecode_plan", default=None)


def _choice() -> Choice | None:
    seen = _chosen.get()
    return None if seen is None else seen._innermost()


def chosen() -> Plan | None:
    """Return the plan that a program asked for itself for a call that is made now, None without one."""
    choice = _choice()
    if choice is None:
        return None
    choice.taken = True
    return choice._plan
