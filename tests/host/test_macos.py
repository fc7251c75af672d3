"""The state of a Mac, from captured outputs alone and with a kernel that answers in the process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.host import macos_native
from otel_specdecode.host.commands import Output
from otel_specdecode.host.macos import COMMANDS, MacReader
from otel_specdecode.host.state import STATES
from tests.host.captures import FOLDERS, FakeMac, captured, spoiled

GIB = 1024**3
M2_MAX = (
    "pmset-g/powermode-high",
    "pmset-batt/mains-charging",
    "notifyutil/heavy",
    "sysctl/m2-max",
    "vm_stat/macos26",
)
M1 = ("pmset-g/no-key", "pmset-custom/lowpowermode-on-battery", "pmset-batt/battery", "notifyutil/nominal")


class FakeKernel:
    """A kernel that knows some values; None for the rest, or for all of them."""

    def __init__(
        self, numbers: dict[str, int] | None = None, level: int | None = None, swap: int | None = None
    ) -> None:
        self.numbers = {"hw.memsize": 128 * GIB} if numbers is None else numbers
        self.level = level
        self.swap = swap

    def sysctl_number(self, name: str) -> int | None:
        return self.numbers.get(name)

    def sysctl_text(self, name: str) -> str | None:
        return None

    def swap_used(self) -> int | None:
        return self.swap

    def thermal_pressure_level(self) -> int | None:
        return self.level


def test_a_state_from_captured_outputs_alone() -> None:
    state = MacReader(FakeMac(*M2_MAX), None).read()
    assert {name: reading.value for name, reading in state.readings().items()} == {
        "power_mode": "high",
        "power_source": "ac",
        "battery_charge": 0.33,
        "thermal_state": "serious",
        "memory_pressure": "normal",
        "swap_used": round(512.25 * 1024**2),
        "swapped_in": 1024615 * 16384,
        "swapped_out": 3028624 * 16384,
        "memory_available": (4604 + 5899 + 398262) * 16384,
        "memory_limit": 64 * GIB,
    }


def test_every_value_says_where_it_came_from() -> None:
    state = MacReader(FakeMac(*M2_MAX), None).read()
    assert {name: reading.source for name, reading in state.readings().items()} == {
        "power_mode": "pmset -g: powermode",
        "power_source": "pmset -g batt",
        "battery_charge": "pmset -g batt",
        "thermal_state": "notifyutil: thermalpressurelevel",
        "memory_pressure": "sysctl kern.memorystatus_vm_pressure_level",
        "swap_used": "sysctl vm.swapusage",
        "swapped_in": "vm_stat: Swapins",
        "swapped_out": "vm_stat: Swapouts",
        "memory_available": "vm_stat: Pages free, Pages speculative, Pages inactive",
        "memory_limit": "sysctl hw.memsize",
    }


def test_a_mac_on_which_no_command_runs_is_unknown_and_says_so() -> None:
    state = MacReader(FakeMac(), None).read()
    whys = {name: reading.why_unknown for name, reading in state.readings().items()}
    assert whys == {
        "power_mode": "pmset is not there",
        "power_source": "pmset is not there",
        "battery_charge": "pmset is not there",
        "thermal_state": "notifyutil is not there; pmset is not there",
        "memory_pressure": "no sysctl kern.memorystatus_vm_pressure_level",
        "swap_used": "vm.swapusage could not be read",
        "swapped_in": "vm_stat is not there",
        "swapped_out": "vm_stat is not there",
        "memory_available": "vm_stat is not there",
        "memory_limit": "no sysctl hw.memsize",
    }


def test_what_the_kernel_tells_takes_no_command() -> None:
    """Each command costs a process; every reading of heat, pressure and swap use is made without one."""
    mac = FakeMac(*M2_MAX)
    kernel = FakeKernel({"hw.memsize": 128 * GIB, "kern.memorystatus_vm_pressure_level": 4}, level=3, swap=7 * GIB)
    state = MacReader(mac, kernel).read()
    assert state.thermal_state.value == "critical"
    assert state.memory_pressure.value == "critical"
    assert state.swap_used.value == 7 * GIB
    assert state.memory_limit.value == 128 * GIB
    assert sorted(mac.asked) == ["pmset -g", "pmset -g batt", "vm_stat"]


def test_a_kernel_that_answers_nothing_is_left_for_the_commands() -> None:
    assert MacReader(FakeMac(*M2_MAX), FakeKernel({})).read() == MacReader(FakeMac(*M2_MAX), None).read()
    assert MacReader(FakeMac(*M2_MAX), macos_native).read().power_mode.value == "high"


def test_power_is_read_less_often_than_the_rest() -> None:
    mac, now = FakeMac(*M2_MAX), [0.0]
    reader = MacReader(mac, FakeKernel(), power_every=15, clock=lambda: now[0])
    for now[0] in (0.0, 5.0, 10.0, 15.0, 20.0):
        reader.read()
    assert mac.asked.count("pmset -g") == mac.asked.count("pmset -g batt") == 2
    assert mac.asked.count("vm_stat") == 5


def test_power_kept_from_before_is_read_again_when_it_is_old() -> None:
    mac, now = FakeMac(*M2_MAX), [0.0]
    reader = MacReader(mac, None, clock=lambda: now[0])
    assert reader.read().power_source.value == "ac"
    mac.answers[FOLDERS["pmset-batt"]] = captured("pmset-batt/battery")
    assert reader.read().power_source.value == "ac"
    now[0] = 15.0
    assert reader.read().power_source.value == "battery"


def test_the_settings_of_the_source_in_use_stand_in_where_those_in_use_lack_the_mode() -> None:
    state = MacReader(FakeMac(*M1), None).read()
    assert state.power_mode.value == "low"
    assert state.power_mode.source == "pmset -g custom, Battery Power: lowpowermode"


def test_a_desktop_has_no_battery_and_says_so() -> None:
    state = MacReader(FakeMac("pmset-g/lowpowermode-off", "pmset-batt/desktop"), None).read()
    assert state.power_source.value == "ac"
    assert state.battery_charge.why_unknown == "pmset -g batt lists no battery"


def test_an_intel_mac_without_notifications_tells_its_speed_limit() -> None:
    state = MacReader(FakeMac("pmset-therm/intel-limited", "sysctl/intel"), None).read()
    assert (state.thermal_state.value, state.thermal_state.source) == ("fair", "pmset -g therm")


@pytest.mark.parametrize("kernel", [None, FakeKernel({"hw.memsize": GIB, "kern.hv_vmm_present": 1}, level=0)])
def test_a_virtual_machine_knows_no_heat(kernel: FakeKernel | None) -> None:
    """Nothing publishes a level there, and a level that was never published reads as nominal."""
    virtual = captured("sysctl/m2-max").replace("kern.hv_vmm_present: 0", "kern.hv_vmm_present: 1")
    state = MacReader(FakeMac("notifyutil/nominal", texts={"sysctl": virtual}), kernel).read()
    assert state.thermal_state.why_unknown == "a virtual machine is told no thermal pressure"


def test_a_command_that_failed_is_the_reason_for_what_it_did_not_tell() -> None:
    mac = FakeMac(*M2_MAX)

    def run(*command: str) -> Output:
        return Output("", "vm_stat took longer than 2 s") if command == FOLDERS["vm_stat"] else mac(*command)

    state = MacReader(run, None).read()
    assert state.swapped_out.why_unknown == "vm_stat took longer than 2 s"
    assert state.power_mode.known


def test_a_runner_or_kernel_that_raises_costs_only_what_it_was_asked_for() -> None:
    class Broken(FakeKernel):
        def swap_used(self) -> int | None:
            raise OSError("no")

    state = MacReader(FakeMac(*M2_MAX), Broken(level=0)).read()
    assert state.swap_used.why_unknown == "reading it failed (OSError)"
    assert state.thermal_state.value == "nominal"


def test_every_command_that_a_reading_takes_is_listed_with_its_full_path() -> None:
    """What has to be captured on a Mac to replay its state elsewhere."""
    assert set(COMMANDS) == set(FOLDERS.values())
    assert all(command[0].startswith("/usr/") for command in COMMANDS)


@given(st.data())
def test_a_mac_whose_outputs_are_all_spoiled_still_has_a_state(data: st.DataObject) -> None:
    names = (*M2_MAX, "pmset-custom/low-and-high-keys", "pmset-therm/intel-limited")
    texts = {name.partition("/")[0]: data.draw(spoiled(captured(name)), label=name) for name in names}
    state = MacReader(FakeMac(texts=texts), None).read()
    for name, reading in state.readings().items():
        if name in STATES:
            assert reading.value in STATES[name]
        else:
            assert reading.value is None or reading.value >= 0  # type: ignore[operator]
