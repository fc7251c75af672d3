"""What the resource tells of the machine and the run, and that it never tells more."""

from __future__ import annotations

import json
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the [otlp] extra")

from opentelemetry.sdk.resources import OTELResourceDetector, get_aggregated_resources

from otel_specdecode.host.machine import Machine, linux_machine, mac_machine, this_machine
from otel_specdecode.identity.declared import Declared
from otel_specdecode.telemetry import resource as module
from otel_specdecode.telemetry.resource import MachineResourceDetector, machine_attributes
from tests.host.captures import FakeMac
from tests.host.machines import GIB, KIB, MEMINFO, build

NOTHING_KNOWN = Machine(
    device_model=None,
    chip=None,
    architecture="",
    physical_cores=None,
    logical_cores=None,
    performance_cores=None,
    efficiency_cores=None,
    memory_total=None,
    os_name="",
    os_version=None,
    os_build=None,
    profile="",
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "declared", Declared)


def a_mac() -> Machine:
    return mac_machine(FakeMac("sysctl/m2-max"), None, architecture="arm64", environ={})


def registered() -> dict[str, Any]:
    """The attributes that the registry has for the machine, each with its type."""
    registry = json.loads(resources.files("otel_specdecode.telemetry").joinpath("registry.json").read_text("utf-8"))
    return {
        name: registry["attributes"][name]["type"] for name in registry["resource"]["specdecode.machine"]["attributes"]
    }


def test_a_mac() -> None:
    assert machine_attributes(a_mac(), "darwin") == {
        "specdecode.machine_profile": "macos-apple-m2-max-64g",
        "host.arch": "arm64",
        "host.cpu.model.name": "Apple M2 Max",
        "device.manufacturer": "Apple",
        "device.model.identifier": "Mac14,6",
        "os.type": "darwin",
        "os.name": "macOS",
        "os.version": "26.6.2",
        "os.build_id": "25G83",
        "specdecode.machine.memory_limit": 64 * GIB,
        "specdecode.machine.physical_cores": 12,
        "specdecode.machine.logical_cores": 12,
        "specdecode.machine.performance_cores": 8,
        "specdecode.machine.efficiency_cores": 4,
    }


def test_a_linux_machine_has_no_maker_and_one_kind_of_cores(tmp_path: Path) -> None:
    root = build(tmp_path, {"proc/meminfo": MEMINFO, "etc/os-release": 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\n'})
    machine = linux_machine(root, architecture="x86_64", kernel_release="6.1.0-9-amd64", environ={})
    assert machine_attributes(machine, "linux") == {
        "specdecode.machine_profile": "linux-x86-64-16g",
        "host.arch": "amd64",
        "os.type": "linux",
        "os.name": "Debian GNU/Linux",
        "os.version": "12",
        "os.build_id": "6.1.0-9-amd64",
        "specdecode.machine.memory_limit": 16303428 * KIB,
    }


def test_what_is_not_known_is_absent() -> None:
    assert machine_attributes(NOTHING_KNOWN, "beos") == {}


def test_the_attributes_are_those_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that tells everything, in a named run, has all of them, of the types declared."""
    monkeypatch.setattr(module, "this_machine", a_mac)
    monkeypatch.setattr(module.sys, "platform", "darwin")
    monkeypatch.setattr(module, "declared", partial(Declared, run_id="canary-7"))
    told = MachineResourceDetector().detect().attributes
    types = {"str": "string", "int": "int"}
    assert {name: types[type(value).__name__] for name, value in told.items()} == registered()


def test_this_machine_tells_nothing_that_the_registry_does_not_have() -> None:
    told = MachineResourceDetector().detect().attributes
    assert set(told) <= set(registered())
    assert told["specdecode.machine_profile"] == this_machine().profile


def test_a_run_that_is_declared_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "specdecode.run_id" not in MachineResourceDetector().detect().attributes
    monkeypatch.setattr(module, "declared", partial(Declared, run_id="canary-7"))
    assert MachineResourceDetector().detect().attributes["specdecode.run_id"] == "canary-7"


@pytest.mark.parametrize("last", ["specdecode", "otel"])
def test_what_the_environment_says_holds_in_any_order_of_detectors(monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.arch=mine,specdecode.machine_profile=studio")
    detectors = [OTELResourceDetector(), MachineResourceDetector()]
    found = get_aggregated_resources(detectors if last == "specdecode" else detectors[::-1]).attributes
    assert (found["host.arch"], found["specdecode.machine_profile"]) == ("mine", "studio")


def test_a_machine_that_cannot_be_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Machine:
        raise OSError("no such machine")

    monkeypatch.setattr(module, "this_machine", fail)
    assert dict(MachineResourceDetector(raise_on_error=True).detect().attributes) == {}
