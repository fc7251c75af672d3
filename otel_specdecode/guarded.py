"""Where the guard is joined to all it needs: the engines' calls, telemetry, the machine, its files.

    import otel_specdecode
    from otel_specdecode.guarded import start_guard

    otel_specdecode.instrument()
    guard = start_guard("guard.toml")

From then on every request of an instrumented engine is planned. `OTEL_SPECDECODE_GUARD_POLICY` does the same without
code.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import asdict

from otel_specdecode.generation.faults import report_fault, warn_once
from otel_specdecode.generation.plan import AS_ASKED, Ask, Choice, Plan, plan_by, planner
from otel_specdecode.generation.request import Method
from otel_specdecode.guard.audit import AuditTrail
from otel_specdecode.guard.baseline import Conditions, Usual
from otel_specdecode.guard.baseline_file import read_baseline, write_baseline
from otel_specdecode.guard.calibration import PROMPTS
from otel_specdecode.guard.canary_file import CanaryFile
from otel_specdecode.guard.deciding import CONTROL
from otel_specdecode.guard.drafts import Drafts
from otel_specdecode.guard.flag_file import says_on
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.machine import MachineState
from otel_specdecode.guard.policy import Policy
from otel_specdecode.guard.policy_file import PolicyFile, policy_in_code, read_policy
from otel_specdecode.guard.saved import NOTHING_SAVED, StateSlot, take_slot
from otel_specdecode.identity.declared import declare_guard
from otel_specdecode.telemetry.guarding import GuardView, show_guard
from otel_specdecode.telemetry.host_metrics import watch
from otel_specdecode.telemetry.listener import tell_baseline, tell_canary, tell_transition
from otel_specdecode.telemetry.tenancy import who_calls

SPECULATION = "OTEL_SPECDECODE_SPECULATION"
"""Environment variable: `off` switches speculation off where a guard runs, `on` leaves it. No flag file counts then."""

LOOK_EVERY = 5.0
"""Seconds between two looks at the machine and at the flag file."""

_SWITCH = {
    **dict.fromkeys(("on", "true", "1", "yes"), True),
    **dict.fromkeys(("off", "false", "0", "no"), False),
}
_LONGEST_LOOK = 1.0
"""Seconds for which a look that goes on, at what may hang, holds up the end."""

Draft = TypeVar("Draft")

_logger = logging.getLogger("otel_specdecode")
_running: RunningGuard | None = None


class PlannedRequest:
    """A plan that was asked for in code; calls in its `with` block run by it.

    Attributes:
        plan: The plan.
    """

    def __init__(self, plan: Plan) -> None:
        """Take a plan."""
        self.plan = plan
        self._choices: list[Choice] = []

    @property
    def speculates(self) -> bool:
        """Whether the request may speculate."""
        return not self.plan.autoregressive

    def __enter__(self) -> Plan:
        """Have the calls of this context run by the plan."""
        self._choices.append(Choice(self.plan))
        return self.plan

    def __exit__(self, *_: object) -> None:
        """Have no further call run by the plan. One that no call ran by is no running request any more."""
        # Of several threads with one plan each ends its own; the block of a generator may end in another context.
        choice = next((each for each in reversed(self._choices) if each.is_here), self._choices[-1])
        self._choices.remove(choice)
        choice.end()
        if not choice.taken and self.plan.permit is not None:
            self.plan.permit.release()


class RunningGuard:
    """The guard of this process. start_guard() makes one."""

    def __init__(self, source: PolicyFile, fixed: Mapping[Conditions, Usual] | None) -> None:
        """Begin to plan requests.

        Args:
            source: The policy, and the folder that its relative paths start from.
            fixed: The baseline of its file, None without one.
        """
        policy = source.policy
        self._declared_before: str | None = None
        self._source = source
        self._written: Mapping[Conditions, Usual] = {}
        self._trail: AuditTrail | None = None
        self._slot: StateSlot | None = None
        tell = [tell_transition]
        folder = source.audit_folder
        if folder is not None:
            _make_folder(folder)
            self._trail = AuditTrail(
                folder, policy.audit.most_bytes, policy.audit.files, policy=policy.digest, afterwards=self._save
            )
            tell.append(self._trail.write)
        self._guard = Guard(policy, tell=tell, tell_baseline=[tell_baseline], fixed=fixed)
        self._canaries = None if source.canary_file is None else CanaryFile(source.canary_file)
        self._ended = threading.Event()
        self._take_slot()
        self._look()
        self._begin()
        _logger.info("the guard runs: %s, policy %s", policy.mode, policy.digest)
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_in_child(weakref.ref(self)))

    @property
    def policy(self) -> Policy:
        """What it goes by."""
        return self._guard.policy

    def plan(
        self,
        *,
        engine: str,
        model: str | None,
        draft_length: int | None,
        method: Method = "draft_model",
        tenant: str | None = None,
        session: str | None = None,
    ) -> PlannedRequest:
        """Plan one request before its engine is called.

            with guard.plan(engine="mlx", model="target", draft_length=4, tenant="acme") as plan:
                generate(model, tokenizer, prompt, draft_model=drafts.get(plan), num_draft_tokens=4)

        Calls in the block run by the plan. Without this every request is planned by itself, for the tenant and session
        of its context's baggage.

        Args:
            engine: `mlx` or `llama_cpp`.
            model: The target's name, as its spans have it.
            draft_length: The draft length that is asked for.
            method: What proposes tokens.
            tenant: On whose behalf; as the context's baggage says where that is None.
            session: Its session, likewise: what a session was chosen for, it keeps.
        """
        who, unloads = who_calls(_text(tenant), _text(session)), self._guard.unloaded[0]
        name = _text(model)
        plans = planner() if self._ended.is_set() else self._guard  # of one that is closed nobody learns
        ask = Ask(engine, name, method, draft_length, who=who)
        plan = AS_ASKED if plans is None else plans.plan(ask)
        return PlannedRequest(replace(plan, method=method, who=who, unloads=unloads))

    def switch(self, on: bool | None) -> None:
        """Switch speculation on or off, whatever the flag file says; None leaves it to that file."""
        self._guard.switch(on)

    def canary(self, passed: bool) -> None:
        """Tell of a quality canary: whether a prompt with a known answer got that answer."""
        tell_canary(passed)
        self._guard.canary(passed)

    def calibrate(
        self, generate: Callable[[str], object], prompts: Iterable[str] = PROMPTS, *, method: Method = "draft_model"
    ) -> None:
        """Fill the baseline before the first user comes: run prompts without their draft.

        Args:
            generate: Generates for a prompt as the program does for a user, with the draft, to the end; 128 tokens or
                more say most.
            prompts: What to run; those that come with the package are short.
            method: What proposes tokens.
        """
        for prompt in prompts:
            with PlannedRequest(Plan(0, CONTROL, CONTROL, method=method)):
                generate(prompt)

    def drafts(self, load: Callable[[], Draft], load_lighter: Callable[[], Draft] | None = None) -> Drafts[Draft]:
        """Return a draft that can be let go of, which makes that a rung of the ladder.

        Args:
            load: Loads the draft.
            load_lighter: Loads one that takes less, which makes that a rung too.
        """
        made = Drafts(load, load_lighter, freed=_give_memory_back, unloaded=lambda: self._guard.unloaded)
        self._guard.unload_with(made.unload, lighter=load_lighter is not None)
        return made

    def write_baseline(self, path: str | os.PathLike[str]) -> None:
        """Write what requests of this process take that asked for no draft, for guards of processes that speculate.

        Raises:
            OSError: It cannot be written.
        """
        write_baseline(path, self._guard.measured())

    def close(self) -> None:
        """Let requests run as asked again; what was decided is on the disk."""
        global _running
        if planner() is self._guard:
            plan_by(None)
            show_guard(None)
            declare_guard(self._declared_before)
        if _running is self:
            _running = None
        atexit.unregister(self.close)
        self._ended.set()
        if self._looking is not threading.current_thread():
            self._looking.join(_LONGEST_LOOK)  # else both would write the baseline
        if self._trail is not None:
            self._trail.close()
        self._save()
        if self._slot is not None:
            self._slot.release()
        self._write_baseline()

    def _begin(self) -> None:
        plan_by(self._guard)
        enforces = self.policy.mode == "enforce"
        promised = {name: value for name, value in asdict(self.policy.degraded_slo).items() if value is not None}
        show_guard(GuardView(self._guard.scopes, self._guard.without_baseline, enforces, promised))
        before = declare_guard(self.policy.digest)
        if before != self.policy.digest:  # in the child of a fork it is declared already
            self._declared_before = before
        self._looking = threading.Thread(
            target=self._keep_looking, args=(self._ended,), name="otel-specdecode-guard", daemon=True
        )
        self._looking.start()

    def _keep_looking(self, ended: threading.Event) -> None:
        self._take_slot()
        while not ended.wait(LOOK_EVERY):
            self._look()
            self._write_baseline()

    def _take_slot(self) -> None:
        """Go on where a process before ended; in the child of a fork once more, on the thread that looks."""
        folder, policy = self._source.audit_folder, self.policy
        if folder is None or not policy.audit.state or self._slot is not None:
            return
        slot = take_slot(folder, policy=policy.digest, max_age=policy.baseline.max_age)
        if slot is not None and slot.found.state is not None:
            self._guard.restore(slot.found.state)
        elif slot is not None and slot.found.reason != NOTHING_SAVED:
            warn_once(f"the guard's saved state is not restored, and a new one takes its place: {slot.found.reason}")
        self._slot = slot

    def _look(self) -> None:
        """Look at everything, the flag first: one that cannot be looked at keeps nobody from the others."""
        for what, look in (
            ("the feature flag", self._look_at_flag),
            ("its canaries", self._look_at_canaries),
            ("the machine", self._look_at_machine),
        ):
            try:
                look()
            except Exception as error:
                report_fault(f"the guard could not look at {what}", error)

    def _look_at_flag(self) -> None:
        said = os.environ.get(SPECULATION, "").strip().lower()
        if said and said not in _SWITCH:
            warn_once(f"{SPECULATION} says neither on nor off: it does not count, the policy's flag file does")
        if said in _SWITCH:
            self._guard.flag(_SWITCH[said])
        elif self._source.flag_file is not None:
            self._guard.flag(says_on(self._source.flag_file))

    def _look_at_canaries(self) -> None:
        for passed in () if self._canaries is None else self._canaries.news():
            self.canary(passed)

    def _look_at_machine(self) -> None:
        state = watch.state()
        self._guard.machine(
            MachineState(
                state.power_mode.value,
                state.thermal_state.value,
                state.memory_pressure.value,
                state.swap_used.value,
            )
        )

    def _save(self) -> None:
        if self._slot is not None:
            self._slot.save(self._guard.saved())

    def _write_baseline(self) -> None:
        path = self._source.baseline_written
        if path is None:
            return
        try:
            measured = self._guard.measured()
            if measured and measured != self._written:
                write_baseline(path, measured)
                self._written = measured
        except Exception as error:
            report_fault("the guard's baseline could not be written", error)

    def renew_in_child(self) -> None:
        """In the child of a fork, which has none of its parent's threads."""
        self._slot = None
        self._ended = threading.Event()
        self._begin()


def _text(name: object) -> str | None:
    """Return a name as text; one that cannot be read is none, as no request may fail for it."""
    try:
        return None if name is None else str(name)
    except Exception as error:
        report_fault("the name of a plan's model, tenant or session could not be read", error)
        return None


def _make_folder(folder: Path) -> None:
    """Make the trail's folder, or say now that it cannot be made: the first decision may be days away."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        warn_once(f"the guard's audit folder cannot be made ({why}): decisions wait in memory until it can")


def start_guard(policy: Policy | str | os.PathLike[str]) -> RunningGuard:
    """Run a guard in this process, in place of the one before.

    Args:
        policy: A policy file, or a policy, whose relative paths start from the working directory.

    Raises:
        PolicyError: It is no policy; the text says what is wrong, of a file in which line.
        BaselineError: Its baseline file holds none.
    """
    global _running
    source = policy_in_code(policy, Path.cwd()) if isinstance(policy, Policy) else read_policy(policy)
    fixed = None if source.baseline_file is None else read_baseline(source.baseline_file)
    if _running is not None:  # the one before leaves its state to this one
        _running.close()
    _running = RunningGuard(source, fixed)
    return _running


def running_guard() -> RunningGuard | None:
    """Return the guard of this process, None without one."""
    return _running


def _give_memory_back() -> None:
    """Have MLX and the C library give back what freed arrays held: both keep that for later ones."""
    core: Any = sys.modules.get("mlx.core")
    if core is not None:
        core.clear_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _in_child(reference: weakref.ref[RunningGuard]) -> Callable[[], None]:
    def renew() -> None:
        guard = reference()
        if guard is not None and guard is _running:
            guard.renew_in_child()

    return renew
