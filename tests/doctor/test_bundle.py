"""The bundle: it replays the host that it was made on, and names nobody."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.doctor import bundle
from otel_specdecode.doctor.checks import Check, Report, Section
from otel_specdecode.doctor.recording import CGROUP, MOUNTS, RecordedLinux, RecordingFiles, anonymous_cgroups
from otel_specdecode.doctor.redaction import Identity, Redaction, this_identity
from otel_specdecode.host.commands import Output
from otel_specdecode.host.machine import mac_machine
from otel_specdecode.host.macos import COMMANDS, MacReader
from otel_specdecode.host.readers import reader_for
from tests.host.captures import FakeMac
from tests.host.machines import IN_A_CONTAINER, LAPTOP, build

M2_MAX = (
    "pmset-g/powermode-high",
    "pmset-batt/mains-charging",
    "pmset-custom/battery-low-mains-high",
    "pmset-therm/apple-silicon",
    "notifyutil/heavy",
    "sysctl/m2-max",
    "vm_stat/macos26",
)
NOBODY = Redaction(Identity((), (), ()))
EMPTY: dict[str, Any] = {"bundle": bundle.FORMAT, "versions": {}, "process": {}, "runs": {}, "checks": []}


def mac_bundle(path: Path, run: Any, redaction: Redaction = NOBODY) -> bundle.Bundle:
    """A bundle as a Mac whose commands answer so would write it, read again."""
    content = {**EMPTY, "system": "darwin", **bundle.mac_host(run, None)}
    bundle.write(path, redaction.value(content))
    return bundle.load(path)


def test_a_macs_bundle_replays_its_state_and_its_machine(tmp_path: Path) -> None:
    mac = FakeMac(*M2_MAX)
    loaded = mac_bundle(tmp_path / "mac.json", mac, Redaction(this_identity()))
    replayed = reader_for("darwin", run=loaded.runner).read()
    assert replayed == MacReader(mac, None).read()
    assert replayed.thermal_state.value == "serious"
    assert {name: each["value"] for name, each in loaded.readings.items()} == {
        name: each.value for name, each in replayed.readings().items()
    }
    assert mac_machine(loaded.runner, None) == mac_machine(mac, None)


def test_a_macs_bundle_holds_every_command_also_one_that_failed(tmp_path: Path) -> None:
    mac = FakeMac("sysctl/intel")

    def run(*command: str) -> Output:
        return Output("half a l", "pmset took longer than 2 s") if "batt" in command else mac(*command)

    loaded = mac_bundle(tmp_path / "mac.json", run)
    assert [tuple(each["command"]) for each in loaded.content["commands"]] == list(COMMANDS)
    state = reader_for("darwin", run=loaded.runner).read()
    assert state.power_source.why_unknown == "pmset took longer than 2 s"
    assert state.swapped_in.why_unknown == "vm_stat is not there"
    assert loaded.runner("/bin/ls") == Output("", "ls is not in the capture")


def test_a_macs_bundle_names_nobody_wherever_a_secret_was_planted(tmp_path: Path) -> None:
    secrets = (
        "zoe-planted",
        "Zoe Planted",
        "zoes-planted-mac",
        "C02PLANTED",
        "99887766",
        "PlantedApp",
        "a4:83:e7:01:02:03",
    )
    planted = (
        "/Users/zoe-planted/x by Zoe Planted on Zoes-Planted-Mac.local\n"
        '"IOPlatformSerialNumber" = "C02PLANTED"\n -InternalBattery-0 (id=99887766)\t5%; discharging\n'
        " sleep 0 (sleep prevented by PlantedApp, PlantedApp2)\n a4:83:e7:01:02:03\n"
    )
    mac = FakeMac(*M2_MAX)

    def run(*command: str) -> Output:
        output = mac(*command)
        return Output(output.text + planted, planted)

    zoe = Identity(
        ("/Users/zoe-planted",), ("Zoe Planted", "zoe-planted"), ("Zoes-Planted-Mac.local", "Zoes-Planted-Mac")
    )
    mac_bundle(tmp_path / "mac.json", run, Redaction(zoe))
    written = (tmp_path / "mac.json").read_text(encoding="utf-8").lower()
    assert [secret for secret in secrets if secret.lower() in written] == []


def test_files_of_linux_replay_its_state_without_the_names_of_its_cgroups(tmp_path: Path) -> None:
    cgroup = {
        "proc/self/cgroup": "0::/user.slice/zoe-planted.slice/app-Planted.scope\n",
        "proc/self/mountinfo": (
            IN_A_CONTAINER["proc/self/mountinfo"] + "40 30 0:40 / /home/zoe-planted rw - nfs planted.example:/x rw\n"
        ),
        "sys/fs/cgroup/user.slice/zoe-planted.slice/memory.max": "1073741824\n",
        "sys/fs/cgroup/user.slice/zoe-planted.slice/memory.current": "536870912\n",
    }
    files = RecordingFiles(build(tmp_path / "here", LAPTOP, IN_A_CONTAINER, cgroup))
    state = RecordedLinux(files).read()
    texts = anonymous_cgroups(files.texts)
    assert "planted" not in str(texts).lower()
    assert texts[CGROUP] == "0::/part1/part2/part3"
    content = {
        **EMPTY,
        "system": "linux",
        "commands": [],
        "readings": {},
        "files": {path: None if text is None else text.split("\n") for path, text in texts.items()},
    }
    bundle.write(tmp_path / "linux.json", content)
    root = bundle.load(tmp_path / "linux.json").write_files(tmp_path / "there")
    replayed = reader_for("linux", root=root).read()
    assert replayed == state
    assert replayed.memory_limit.value == 1024**3
    assert replayed.power_source.value == "ac"


def test_only_mounts_of_cgroups_are_kept() -> None:
    kept = anonymous_cgroups({MOUNTS: "1 2 0:1 / / rw - ext4 /dev/vda rw\n" + IN_A_CONTAINER["proc/self/mountinfo"]})
    assert (kept[MOUNTS] or "").count("\n") == 0
    assert "cgroup2" in (kept[MOUNTS] or "")


def test_files_of_a_bundle_are_written_below_the_folder_alone(tmp_path: Path) -> None:
    content = {**EMPTY, "system": "linux", "commands": [], "readings": {}, "files": {"/../../outside": ["x"]}}
    bundle.write(tmp_path / "bad.json", content)
    bundle.load(tmp_path / "bad.json").write_files(tmp_path / "a" / "root")
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("content", ["[]", "{}", '{"bundle": "otel-specdecode doctor bundle 9"}'])
def test_a_file_that_is_no_bundle_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match=r"^x\.json is not a bundle"):
        bundle.load(tmp_path / "x.json")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="replays files of Linux")
def test_a_bundle_of_this_machine_replays_it_and_names_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_installed", list)
    monkeypatch.setenv("OTEL_SPECDECODE_MACHINE_PROFILE", "rack-planted")
    secret = Check("otlp.traces", "traces", "ok", "https://planted.example")
    profile = Check("machine.profile", "machine profile", "ok", "rack-planted", facts={"profile": "rack-planted"})
    report = Report((Section("machine", "Machine", (profile,)), Section("telemetry", "OpenTelemetry", (secret,))))
    bundle.write(tmp_path / "here.json", bundle.capture(report, Redaction(this_identity())))
    written = (tmp_path / "here.json").read_text(encoding="utf-8")
    names = {getpass.getuser(), socket.gethostname(), str(Path.home()), "planted"} - {"root", "/root", "localhost"}
    assert [name for name in names if len(name) >= 3 and name in written] == []
    loaded = bundle.load(tmp_path / "here.json")
    state = reader_for("linux", root=loaded.write_files(tmp_path / "root")).read()
    assert state.memory_limit.value == loaded.readings["memory_limit"]["value"]
    assert loaded.content["process"]["memory"]["resident"] > 0


def test_a_file_or_a_link_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text("mine")
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    for name in ("kept.json", "link.json"):
        with pytest.raises(FileExistsError):
            bundle.write(tmp_path / name, EMPTY)
    assert (tmp_path / "kept.json").read_text() == "mine"
    assert not (tmp_path / "target.json").exists()


def test_a_bundle_is_lines_that_a_person_can_read_and_compare(tmp_path: Path) -> None:
    mac_bundle(tmp_path / "mac.json", FakeMac(*M2_MAX))
    lines = (tmp_path / "mac.json").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) < 200
    assert any('"Swapins:' in line for line in lines)
    json.loads("\n".join(lines))
