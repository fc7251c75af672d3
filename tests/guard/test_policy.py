"""The classes of a policy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")

import msgspec

from otel_specdecode.guard.policy import (
    MEANING,
    MEASURES,
    OF_FAILURES,
    OF_REQUESTS,
    OF_ROUNDS,
    OF_THE_MACHINE,
    Policy,
    Scope,
    Table,
    Trigger,
    Windows,
)
from otel_specdecode.guard.policy_file import read_policy
from otel_specdecode.thresholds import thresholds


def test_a_new_policy_only_observes() -> None:
    assert Policy().mode == "observe_only"


def test_everything_may_be_left_out() -> None:
    for kind in (Policy, *Table.__subclasses__()):
        assert all(not each.required for each in msgspec.structs.fields(kind)), kind


def test_every_measure_is_of_one_thing_and_has_a_meaning() -> None:
    kinds = (OF_ROUNDS, OF_REQUESTS, OF_FAILURES, OF_THE_MACHINE)
    assert sorted(each for kind in kinds for each in kind) == sorted(MEASURES)
    assert set(MEANING) == set(MEASURES)


def test_every_measure_trips_something_by_default() -> None:
    triggers = Policy().triggers
    assert {name if each.measure is msgspec.UNSET else each.measure for name, each in triggers.items()} == set(MEASURES)


def test_the_bounds_of_accept_rate_are_those_of_the_rules() -> None:
    triggers = Policy().triggers
    assert triggers["accept_rate"] == Trigger(below=thresholds()["accept_rate"]["warning"], action="down")
    critical = Trigger(measure="accept_rate", below=thresholds()["accept_rate"]["critical"], windows=3)
    assert triggers["accept_rate_critical"] == critical


def test_the_digest_is_of_what_a_policy_says_and_not_of_how(tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text('mode = "enforce"\n[triggers.queue]\nabove = 2\n[triggers.speedup]\nbelow = 1.10\n')
    other.write_text('triggers.speedup.below = 1.1 # less\ntriggers.queue = { above = 2.0 }\n"mode" = "enforce"\n')
    assert read_policy(one).policy.digest == read_policy(other).policy.digest


@pytest.mark.parametrize(
    "other",
    [
        Policy(mode="enforce"),
        Policy(windows=Windows(rounds=201)),
        Policy(scope=Scope(by="tenant")),
        Policy(flag_file="flag"),
        Policy(triggers={"queue": Trigger(above=2.0)}),
        Policy(triggers={"queue": Trigger(above=2.5)}),
    ],
)
def test_what_says_something_else_has_another_digest(other: Policy) -> None:
    assert other.digest != Policy().digest


@pytest.mark.parametrize("module", ["policy", "policy_file"])
def test_without_msgspec_the_guard_says_what_to_install(module: str) -> None:
    script = f"import sys; sys.modules['msgspec'] = None; import otel_specdecode.guard.{module}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert last == 'ModuleNotFoundError: the guard needs its extra [guard]: pip install "otel-specdecode[guard]"'
