"""The engines: installed, supported, startable, and whether the hooks fit them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.children import Answer, ask_child
from otel_specdecode.doctor.daemons import side_by_side
from otel_specdecode.doctor.texts import one_line
from otel_specdecode.instrumentors import instrumentors

START_SECONDS = 120.0
"""The longest that an engine may take to be imported: the first time after an installation it is slow."""

Versions = Callable[[str], "str | None"]
"""Returns the version of an installed distribution."""

Probe = Callable[[str], Answer]
"""Imports an engine by its module and returns what was found."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: how it is imported, what it is called, which extra of this package brings it, what it needs."""

    module: str
    title: str
    extra: str
    needs: tuple[str, ...] = ()

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f'pip install "otel-specdecode[{self.extra}]"'


ENGINES = (
    Engine("mlx_lm", "MLX-LM", "mlx", ("mlx",)),
    Engine("llama_cpp", "llama.cpp", "llama-cpp"),
)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def probe_child(module: str) -> Answer:
    """Import an engine in a process of its own."""
    return ask_child("otel_specdecode.doctor.engine_probe", module, timeout=START_SECONDS)


def engine_checks(versions: Versions = installed_version, probe: Probe = probe_child) -> list[Check]:
    """Return what there is of each engine; that there is none at all is broken."""
    ranges = supported()
    installed = {engine: versions(ranges[engine.module].name) for engine in ENGINES}
    startable = [engine.module for engine, found in installed.items() if found is not None]
    answers = dict(zip(startable, side_by_side(probe, startable), strict=True))
    checks = []
    for engine, found in installed.items():
        if found is None:
            detail = f"not installed; {engine.install} brings it"
            checks.append(Check(f"engine.{engine.module}", engine.title, "ok", detail, facts={"version": None}))
            continue
        needs = {name: versions(name) for name in engine.needs}
        checks.append(_version_check(engine, found, needs, ranges[engine.module]))
        checks += _start_checks(engine, answers[engine.module])
    if not startable:
        ways = ", or ".join(engine.install for engine in ENGINES)
        checks.append(Check("engine.any", "an engine", "error", "no engine is installed", ways))
    return checks


def supported() -> dict[str, Requirement]:
    """Return distribution and supported versions of each engine by its module, as the instrumentors state them."""
    return {
        module: Requirement(next(iter(instrumentor.instrumentation_dependencies())))
        for module, instrumentor in instrumentors().items()
    }


def _version_check(engine: Engine, found: str, needs: Mapping[str, str | None], range_: Requirement) -> Check:
    beside = "".join(f", {name} {each}" if each else f", {name} not installed" for name, each in needs.items())
    facts = {"version": found, "supported": str(range_.specifier), **{f"{name}_version": needs[name] for name in needs}}
    id_, title = f"engine.{engine.module}", engine.title
    told = f"{range_.name} {found}{beside}"
    try:
        fits = range_.specifier.contains(Version(found), prereleases=True)
    except InvalidVersion:
        return Check(id_, title, "warn", f"{told}; supported are {range_.specifier}, this version is none", facts=facts)
    if fits:
        return Check(id_, title, "ok", f"{told}; supported ({range_.specifier})", facts=facts)
    fix = f"pip install --upgrade '{range_.name}{range_.specifier}'"
    return Check(id_, title, "error", f"{told} is not supported: it takes {range_.specifier}", fix, facts)


def _start_checks(engine: Engine, answer: Answer) -> list[Check]:
    """Return whether the engine starts and, if it does, whether the hooks fit it."""
    id_, title = f"engine.{engine.module}.starts", f"{engine.title} starts"
    again = f"reinstall it: {engine.install}"
    if answer.failure:
        return [Check(id_, title, "error", f"importing it {answer.failure}", again)]
    found = answer.found
    if "import_error" in found:
        detail = f"it cannot be imported ({found['import_error']}: {one_line(found['import_text'])})"
        return [Check(id_, title, "error", detail, again)]
    facts = found.get("facts", {})
    return [Check(id_, title, "ok", _told(facts), facts=facts), _hooks_check(engine, answer)]


def _hooks_check(engine: Engine, answer: Answer) -> Check:
    id_, title = f"engine.{engine.module}.hooks", f"{engine.title} hooks"
    unhooked, warnings = list(answer.found.get("unhooked", ())), list(map(one_line, answer.found.get("warnings", ())))
    facts = {"unhooked": unhooked, "warnings": warnings}
    if unhooked:
        reasons = "; ".join(warnings) or "no reason was given"
        detail = f"they do not fit this version, so nothing would be recorded: {', '.join(unhooked)} ({reasons})"
        return Check(id_, title, "error", detail, "pip install --upgrade otel-specdecode, or an older engine", facts)
    if warnings:
        return Check(id_, title, "warn", f"they fit, with a warning: {'; '.join(warnings)}", facts=facts)
    return Check(id_, title, "ok", "they fit this version", facts=facts)


def _told(facts: Mapping[str, object]) -> str:
    if "device" in facts:
        metal = "with Metal" if facts.get("metal") else "without Metal"
        return f"yes, on {facts.get('device_name') or facts['device']}, {metal}"
    if "gpu_offload" in facts:
        return f"yes, {'can' if facts['gpu_offload'] else 'cannot'} use a GPU"
    return "yes"
