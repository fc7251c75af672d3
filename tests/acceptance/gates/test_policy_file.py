"""Policies of gates: what is read, and what is said of one that cannot be used."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.gates.policy import PRESETS, GatesPolicy
from otel_specdecode.acceptance.gates.policy_file import preset_policy, read_gates
from otel_specdecode.acceptance.gates.policy_text import preset_text
from otel_specdecode.guard.toml_file import PolicyError

WAIVER = "[[waivers]]\ngate = 'steady'\nwho = 'A'\nreason = 'B'\nexpires = 2026-01-31\n"
P = "preset = 'balanced'\n"

BROKEN = [
    ("version = 2 #!", "this release reads version 1 of the format, not 2: `otel-specdecode gates init`"),
    (
        "preset = 'balance' #!",
        'preset must be one of interactive, balanced, batch, not "balance"; did you mean balanced?',
    ),
    ("preset = 3 #!", "preset must be one of interactive, balanced, batch, not 3"),
    ("preset = [] #!", "preset must be one of interactive, balanced, batch, not a list"),
    (f"{P}gate = 1 #!", "a policy of gates has no key gate; did you mean gates?"),
    ("gates = 3 #!", "gates must be a table of tables, as in [gates.NAME], not 3"),
    ("version = 1\n[gates] #!", "there is no gate: name a preset, or write [gates.NAME]"),
    (f"{P}[gates]\nsteady = 3 #!", "gates.steady must be a table, not 3"),
    (f"{P}[gates.Fast] #!\nmeasure = 'steady'\nat_least = 1", 'the gate\'s name "Fast" must begin with a small letter'),
    (
        "[gates.stedy] #!\nat_least = 1",
        "gates.stedy needs a measure, as its name is that of none, nor of a gate of the",
    ),
    (
        "[gates.speed_up] #!\nat_least = 1",
        'presets have a gate of that name: name one that has, as in preset = "balanced"',
    ),
    ("[gates.mine]\nat_least = 1\nmeasure = 'accept' #!", 'there is no measure "accept"; did you mean accept_rate?'),
    (
        "[gates.mine] #!\nmeasure = 'accept_rate'",
        "gates.mine needs a bound: say one of at_most, at_least, above, below",
    ),
    ("[gates.accept_rate]\nat_least = 1\nabove = 1 #!", "gates.accept_rate has at_least and above: leave one"),
    (f"{P}[gates.steady]\nat_lest = 1 #!", "[gates.steady] has no key at_lest; did you mean at_least?"),
    (f"{P}[gates.steady]\nat_least = 'speedup.lo' #!", 'not "speedup.lo"; did you mean speedup.low?'),
    (f"{P}[gates.steady]\nat_least = true #!", "gates.steady.at_least must be a number, or a text in quotes, not true"),
    (f"{P}[gates.steady]\nat_least = nan #!", "gates.steady.at_least must be finite, not nan"),
    (f"{P}[gates.steady]\nwindow = [9, 3] #!", "gates.steady.window must be a first token and a later last one"),
    (f"{P}[gates.steady]\nneeds = 0 #!", "gates.steady.needs must be a whole number from 1 to 1_000_000"),
    (f"{P}[gates.steady]\nseries = 3 #!", "gates.steady.series means nothing to the measure steady: leave it out"),
    (f"{P}[gates.throttling]\nk = 3 #!", "gates.throttling.k means nothing to the measure throttle_events"),
    (f"{P}[gates.steady]\ntier = 'middle' #!", 'gates.steady.tier must be one of "long", "mid", "short", not "middle"'),
    (f"{P}[gates.accept_rate_median]\narm = 'autoregressive' #!", "which has no k and no baseline"),
    (f"{P}[gates.steady]\nenabled = 'no' #!", "gates.steady.enabled must be true or false"),
    ("validity = 3 #!", "validity must be a table, not 3"),
    (f"{P}[validity]\nwarm_up = -1 #!", "validity.warm_up must be a number from 0 and below 1e15, not -1"),
    (f"{P}[validity]\npause = 'x' #!", "validity.pause must be a number"),
    (
        f"{P}[gates.same_output]\nquantised_difference = 2 #!",
        "quantised_difference must be a number from 0 to 1, not 2",
    ),
    (f"{P}[gates.steady]\nquantised_difference = 0.1 #!", "quantised_difference means nothing to the measure steady"),
    (f"{P}[validity]\nwarmup = 1 #!", "[validity] has no key warmup; did you mean warm_up?"),
    (
        f"{P}[validity]\nfree_memory = 'host' #!",
        "validity.free_memory must be a number, or the name of one in thresholds",
    ),
    (f"{P}waivers = 3 #!", "waivers must be a list of tables, as in [[waivers]], not 3"),
    (
        f"{P}[[waivers]] #!\ngate = 'steady'\nwho = 'A'",
        "a waiver needs gate, who, reason, expires; this one lacks reason",
    ),
    (f"{P}{WAIVER}by = 'B' #!", "a waiver has no key by; its keys are gate, who, reason, expires"),
    (
        P + WAIVER.replace("2026-01-31", "'soon' #!"),
        "waivers[0].expires must be a date such as 2026-01-31, without",
    ),
    (P + WAIVER.replace("2026-01-31", "2026-01-31T10:00:00Z #!"), "waivers[0].expires must be a date"),
    (P + WAIVER.replace("'steady'", "'stedy' #!"), 'there is no gate "stedy" to waive; did you mean steady?'),
    (P + WAIVER.replace("'A'", "' ' #!"), "waivers[0].who must say something"),
    (
        f"{P}{WAIVER}{WAIVER.replace(chr(39) + 'B' + chr(39), '3 #!')}",
        "waivers[1].reason must be a text in quotes, not 3",
    ),
    ("preset = #!", "this is not TOML"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str) -> GatesPolicy:
    """The policy of a file in the current folder."""
    Path("gates.toml").write_text(text, encoding="utf-8")
    return read_gates("gates.toml")


@pytest.mark.parametrize(("text", "told"), BROKEN)
def test_what_is_wrong_is_said_once_with_its_line(folder: Path, text: str, told: str) -> None:
    marked = text[: text.index("#!")].count("\n") + 1
    with pytest.raises(PolicyError) as caught:
        read(text)
    (line,) = caught.value.lines
    assert line.startswith(f"gates.toml:{marked}: ")
    assert told in line


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_file(folder: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        read(f"{P}[validity]\nsoak = 'x'\n[gates.steady]\nk = 0\nat_least = ''\n[[waivers]]\ngate = 'x'\n")
    assert [line.split(": ")[0] for line in caught.value.lines] == [f"gates.toml:{each}" for each in (3, 5, 6, 7)]


def test_a_missing_file_says_which_command_writes_one(folder: Path) -> None:
    with pytest.raises(PolicyError, match=r"gates\.toml:1: .*`otel-specdecode gates init --preset balanced --output"):
        read_gates("gates.toml")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_file_that_names_a_preset_is_the_preset(folder: Path, preset: str) -> None:
    assert read(f"preset = '{preset}'") == preset_policy(preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_file_that_init_prints_is_the_preset(folder: Path, preset: str) -> None:
    text = preset_text(preset)

    read_back = read(text)
    assert read_back.validity == preset_policy(preset).validity
    about = {name: gate.about for name, gate in read_back.gates.items()}
    assert read_back == preset_policy(preset)
    assert all(about.values())
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("preset", PRESETS)
def test_the_example_of_a_waiver_can_be_switched_on(folder: Path, preset: str) -> None:
    before, _, after = preset_text(preset).partition("# [[waivers]]")
    policy = read(before + "[[waivers]]" + after.replace("\n# ", "\n"))

    (waiver,) = policy.waivers
    assert (waiver.gate, waiver.expires) == ("quality", date(2026, 1, 31))


def test_what_is_written_takes_the_place_of_the_presets(folder: Path) -> None:
    policy = read(f"{P}[gates.time_per_token_p95]\nat_most = 0.05\n[validity]\nwarm_up = 10\n")

    gate, before = policy.gates["time_per_token_p95"], preset_policy("balanced").gates["time_per_token_p95"]
    assert (gate.limit, gate.needs, gate.about) == (0.05, before.needs, before.about)
    assert (policy.validity.warm_up, policy.validity.soak) == (10, 1800)


def test_another_bound_takes_the_place_of_the_presets(folder: Path) -> None:
    gate = read(f"{P}[gates.accept_rate]\nabove = 0.5\n").gates["accept_rate"]

    assert (gate.bound, gate.limit, gate.at_least) == ("above", 0.5, None)


def test_a_gate_can_be_added_and_its_name_can_be_its_measure(folder: Path) -> None:
    policy = read(
        "[gates.round_p99]\nat_most = 0.1\n[gates.mine]\nmeasure = 'accept_rate'\nat_least = 'accept_rate.critical.4'"
    )

    assert policy.preset is None
    assert [(name, each.measure, each.limit) for name, each in policy.gates.items()] == [
        ("round_p99", "round_p99", 0.1),
        ("mine", "accept_rate", 0.4),
    ]


def test_two_policies_that_differ_in_a_number_have_different_digests(folder: Path) -> None:
    one, other = read(P), read(f"{P}[gates.steady]\nat_least = 1.2")

    assert one.digest != other.digest
    assert one.digest == preset_policy("balanced").digest
