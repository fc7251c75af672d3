"""The page on gates says what the presets say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("rich", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.gates.measures import MEASURES
from otel_specdecode.acceptance.gates.policy import PRESETS, WORDS
from otel_specdecode.acceptance.gates.policy_file import preset_policy, preset_tables, read_gates
from otel_specdecode.acceptance.gates.terminal import amount
from otel_specdecode.acceptance.gates_commands import STATUS
from tests.docs.pages import DOCS, blocks, rows, text_of

pytestmark = pytest.mark.source

PAGE = text_of(DOCS / "gates.md")


def expected(table: str, name: str) -> list[str]:
    gate = preset_policy(PRESETS[0] if table == "common" else table).gates[name]
    measure = MEASURES[gate.measure]
    bound = amount(gate.limit, "ratio" if gate.over_autoregressive else measure.unit)
    series = f"{gate.series} x " if gate.series else ""
    of = measure.samples.removesuffix("s") if gate.samples == 1 else measure.samples
    needs = f"{series}{gate.samples} {of}"
    return [f"`{name}`", "all" if table == "common" else table, f"{WORDS[gate.bound]} {bound}", needs, gate.about]


def test_the_table_has_every_gate_of_every_preset_as_it_is() -> None:
    gates = [expected(table, name) for table in (*PRESETS, "common") for name in preset_tables()[table]]

    assert rows(PAGE, "## The gates") == gates


def test_the_exit_statuses_are_those_of_the_command() -> None:
    told = {row[0].strip("`"): int(row[1]) for row in rows(PAGE, "## The verdict") if row[0]}

    assert told == STATUS


def test_the_conditions_have_their_numbers() -> None:
    validity = preset_policy("balanced").validity
    told = dict(rows(PAGE, "## When a run counts"))

    assert told["warm-up"].startswith(f"{validity.warm_up:g} s ")
    assert told["soak"].startswith(f"{validity.soak / 60:g} min ")
    assert told["age"].startswith(f"{validity.max_age:g} days")
    assert f" {validity.sleep:g} s ahead" in told["sleep"]
    assert validity.blind == 60
    assert f"fewer than {validity.shortest_answer} tokens" in PAGE


def test_the_policy_on_the_page_can_be_used(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "toml")
    (tmp_path / "gates.toml").write_text(text)

    policy = read_gates(tmp_path / "gates.toml")
    assert policy.gates["code_stays_fast"].limit == 60
    assert not policy.gates["distribution"].enabled
    assert [each.gate for each in policy.waivers] == ["quality"]
