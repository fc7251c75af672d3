"""The presets hold the numbers that were chosen, each once."""

from __future__ import annotations

import re
from importlib import resources

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.gates.measures import MEASURES
from otel_specdecode.acceptance.gates.policy import BOUNDS, PRESETS, numbers
from otel_specdecode.acceptance.gates.policy_file import preset_policy, preset_tables

MIB, GIB = 2**20, 2**30
POLICIES = {preset: preset_policy(preset) for preset in PRESETS}

OWN = [
    # preset, gate, measure, bound, number, what else it says
    ("interactive", "time_to_first_token", "time_to_first_token_p50", "at_most", 1.08, {"over_autoregressive": True}),
    ("interactive", "time_to_first_token", "time_to_first_token_p50", "at_most", 1.08, {"tier": "short"}),
    ("interactive", "time_to_first_token_p95", "time_to_first_token_p95", "at_most", 0.850, {"needs": 50, "series": 3}),
    ("interactive", "time_to_first_token_p95", "time_to_first_token_p95", "at_most", 0.850, {"max_input_tokens": 1024}),
    ("interactive", "time_to_first_token_p95_4k", "time_to_first_token_p95", "at_most", 0.900, {"tier": "mid"}),
    (
        "interactive",
        "time_to_first_token_p95_4k",
        "time_to_first_token_p95",
        "at_most",
        0.900,
        {"min_input_tokens": 3072},
    ),
    ("interactive", "round_p95", "round_p95", "at_most", 0.068, {}),
    ("interactive", "round_p99", "round_p99", "at_most", 0.120, {}),
    ("balanced", "tokens_per_second", "tokens_per_second", "at_least", 44, {"against": 38}),
    ("balanced", "speed_up", "tokens_per_second", "at_least", 1.16, {"over_autoregressive": True}),
    ("balanced", "time_per_token_p95", "time_per_token_p95", "at_most", 0.045, {"against": 0.052}),
    ("balanced", "accept_rate_median", "accept_rate_median", "at_least", 0.55, {"k": 4}),
    ("batch", "emitted_per_second", "emitted_per_second", "at_least", 28, {"run": "soak", "seconds": 600}),
    (
        "batch",
        "emitted_per_second_autoregressive",
        "emitted_per_second",
        "at_least",
        18,
        {"arm": "autoregressive", "run": "soak"},
    ),
    ("batch", "peak_memory_bytes", "peak_memory", "at_most", 24 * GIB, {}),
    ("batch", "no_swap", "swapped_out", "at_most", 0, {}),
]
COMMON = [
    ("steady", "steady", "at_least", 1.15, {"window": (512, 2048), "drop": 64, "by": "interval"}),
    ("steady", "steady", "at_least", 1.15, {"over_autoregressive": True}),
    ("accept_rate", "accept_rate", "at_least", 0.42, {}),
    ("accept_rate_by_context", "accept_rate_by_context", "at_least", 0.45, {"needs": 200}),
    ("break_even", "break_even_margin", "above", 0, {}),
    ("peak_memory", "peak_memory_share", "at_most", 0.78, {}),
    ("memory_rise", "memory_rise", "below", 0.12, {"swap_episodes": 3, "days": 7, "level": "warning"}),
    ("swap_growth", "swap_growth", "below", 512 * MIB, {}),
    ("swap_in", "swapped_in", "at_most", 200 * MIB, {"run": "soak"}),
    ("memory_pressure", "pressure_critical", "at_most", 60, {}),
    ("throttling", "throttle_events", "at_most", 0, {}),
    ("quality", "success_difference", "within", 0.005, {"needs": 200}),
    ("same_output", "different_answers", "at_most", 0, {"quantised_difference": 0.1}),
    ("distribution", "opening_p_value", "at_least", 0.01, {"needs": 100}),
    ("failures", "failures", "at_most", 0, {}),
]
EVERY = [*OWN, *((preset, *row) for preset in PRESETS for row in COMMON)]


@pytest.mark.parametrize(("preset", "name", "measure", "bound", "limit", "more"), EVERY)
def test_a_gate_has_its_numbers(
    preset: str, name: str, measure: str, bound: str, limit: float, more: dict[str, object]
) -> None:
    gate = POLICIES[preset].gates[name]

    assert (gate.measure, gate.bound, gate.limit) == (measure, bound, limit)
    for key, value in more.items():
        found = getattr(gate, key)
        assert (numbers()[found] if isinstance(found, str) and key in ("needs", "max_input_tokens") else found) == value


def test_no_gate_is_left_out_of_these_tables() -> None:
    for preset, policy in POLICIES.items():
        assert policy.gates.keys() == {row[1] for row in EVERY if row[0] == preset}


def test_what_makes_a_run_valid_has_its_numbers() -> None:
    validity = POLICIES["balanced"].validity

    assert (validity.warm_up, validity.soak, validity.max_age, validity.sleep) == (180, 30 * 60, 14, 2)
    assert (validity.pause, validity.blind) == (60, 60)
    assert validity.shortest_answer == 128
    assert numbers()[validity.free_memory] == 0.10
    assert all(policy.validity == validity for policy in POLICIES.values())


def test_every_gate_decides_but_the_warning() -> None:
    for policy in POLICIES.values():
        assert {name for name, gate in policy.gates.items() if gate.level == "warning"} == {"memory_rise"}
        assert all(gate.enabled for gate in policy.gates.values())


def test_every_gate_says_what_it_is_good_for() -> None:
    for policy in POLICIES.values():
        assert all(re.fullmatch(r"[A-Z0-9].{20,}\.", gate.about) for gate in policy.gates.values())


def test_a_number_that_thresholds_toml_has_is_not_written_again() -> None:
    """Only numbers that are a choice: 0, 7 and 20 of the one file are not those of the other."""
    chosen = {name: numbers()[name] for name in ("speedup.low", "memory.share_of_physical", "swap.growth")}
    chosen |= {name: numbers()[name] for name in ("accept_rate.warning.4", "context_tier.short", "context_tier.mid")}
    chosen |= {"sweep.tuning_accept_rate": numbers()["sweep.tuning_accept_rate"]}
    text = resources.files("otel_specdecode.acceptance.gates").joinpath("presets.toml").read_text(encoding="utf-8")
    written = {float(each) for each in re.findall(r"= (-?[\d.]+)$", text, re.MULTILINE)}

    assert not written & set(chosen.values())


def test_a_number_is_written_once() -> None:
    gates = [gate for table in ("common", *PRESETS) for gate in preset_tables()[table].values()]
    written = [
        (MEASURES[gate["measure"]].unit, gate[bound])
        for gate in gates
        for bound in BOUNDS
        if bound in gate and not isinstance(gate[bound], str) and gate[bound]
    ]

    assert len(written) == len(set(written)) > 10


def test_presets_read_every_kind_of_thing_that_can_be_measured() -> None:
    read = {gate.measure for policy in POLICIES.values() for gate in policy.gates.values()}

    assert MEASURES.keys() - read == {"round_p50"}
