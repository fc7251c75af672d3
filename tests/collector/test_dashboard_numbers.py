"""What single queries of the dashboards say of series that are made to mislead them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from collector.grafana.reading import defaults, expand, queries
from tests.collector.dashboards import dashboard
from tests.collector.promtool import promtool

pytestmark = [pytest.mark.e2e, pytest.mark.source]

WINDOW = "4m"
"""What Grafana makes of exports that are a minute apart."""

SERVICE = 'job="chat", instance="one", node="mac-1"'
MODEL = 'gen_ai_provider_name="llama_cpp", gen_ai_request_model="some"'
DRAFTED = f'{SERVICE}, {MODEL}, specdecode_mode="speculative", specdecode_cohort="normal", specdecode_draft_length="4"'


def query(name: str, panel: str, ref_id: str = "A") -> str:
    """Return a query of a dashboard as it opens."""
    board = dashboard(name)
    (found,) = (one.expr for one in queries(board) if (one.panel, one.ref_id) == (panel, ref_id))
    return expand(found, defaults(board), WINDOW)


def says(
    folder: Path, series: Mapping[str, str], expected: Mapping[tuple[str, int], Sequence[tuple[str, float]]]
) -> str:
    """Return what promtool has against the values of expressions half a minute after minutes; "" if nothing."""
    lines = ["tests:", "  - interval: 1m", "    input_series:"]
    for name, values in series.items():
        lines += [f"      - series: {json.dumps(name)}", f"        values: {json.dumps(values)}"]
    lines.append("    promql_expr_test:")
    for (expression, minute), samples in expected.items():
        lines += [f"      - expr: {json.dumps(expression)}", f"        eval_time: {minute}m30s"]
        lines.append("        exp_samples:" if samples else "        exp_samples: []")
        for labels, value in samples:
            lines += [f"          - labels: {json.dumps(labels)}", f"            value: {value}"]
    (folder / "numbers.yaml").write_text("\n".join(lines))
    done = promtool("test", "rules", folder / "numbers.yaml")
    return "" if done.returncode == 0 else done.stdout + done.stderr


# What runs


def tokens(method: str, accepted: int, rejected: int) -> dict[str, str]:
    labels = f'{DRAFTED}, specdecode_method="{method}"'
    return {
        f'specdecode_draft_tokens_total{{{labels}, specdecode_draft_outcome="{outcome}"}}': f"0+{each_minute}x40"
        for outcome, each_minute in (("accepted", accepted), ("rejected", rejected))
    }


def info(method: str, draft: str, manifest: str, values: str) -> dict[str, str]:
    labels = f'{SERVICE}, {MODEL}, specdecode_method="{method}", specdecode_draft_length="4"'
    labels += (
        f', specdecode_draft_model="{draft}", specdecode_engine_version="1.0", specdecode_manifest_id="{manifest}"'
    )
    return {f"specdecode_config_info{{{labels}}}": values}


def test_after_a_change_to_a_draft_of_the_same_length_no_manifest_gets_the_numbers_of_the_other(tmp_path: Path) -> None:
    asked = query("incident", "Accept rate by manifest")
    series = {
        **tokens("draft_model", 30, 10),
        **info("draft_model", "old", "aaaaaaaaaa", "1x40"),
        **info("draft_model", "new", "bbbbbbbbbb", "_x19 1x20"),
        **tokens("prompt_lookup", 10, 10),
        **info("prompt_lookup", "none", "cccccccccc", "1x40"),
    }

    def told(draft: str, manifest: str) -> str:
        labels = (
            f'specdecode_draft_model="{draft}", specdecode_engine_version="1.0", specdecode_manifest_id="{manifest}"'
        )
        return f"{{{labels}}}"

    lookup = (told("none", "cccccccc"), 0.5)
    before = [(told("old", "aaaaaaaa"), 0.75), lookup]
    after = [('{specdecode_draft_model="several"}', 0.75), lookup]
    assert says(tmp_path, series, {(asked, 15): before, (asked, 35): after}) == ""


def test_two_policies_of_one_manifest_are_one_configuration(tmp_path: Path) -> None:
    asked = query("incident", "Accept rate by manifest")
    (selector,) = info("draft_model", "some", "aaaaaaaaaa", "1x40")
    series = {**tokens("draft_model", 30, 10), selector: "1x40"}
    series[selector.replace("}", ', specdecode_policy_hash="p"}')] = "1x40"
    found = '{specdecode_draft_model="some", specdecode_engine_version="1.0", specdecode_manifest_id="aaaaaaaa"}'
    assert says(tmp_path, series, {(asked, 15): [(found, 0.75)]}) == ""


# What a draft costs


def test_passes_of_a_draft_are_divided_by_the_rounds_of_the_same_method(tmp_path: Path) -> None:
    series = {
        f'specdecode_{metric}_total{{{DRAFTED}, specdecode_method="{method}"}}': f"0+{each_minute}x40"
        for method, rounds, calls, passes in (
            ("draft_model", 10, 10, 40),
            ("prompt_lookup", 20, 30, 0),
            ("custom", 50, 50, 0),
        )
        for metric, each_minute in (("verify_passes", rounds), ("draft_calls", calls), ("draft_passes", passes))
    }

    def by(method: str) -> str:
        return f'{{gen_ai_request_model="some", specdecode_method="{method}"}}'

    title = "Draft passes and calls a round"
    passes = [(by("draft_model"), 4), (by("prompt_lookup"), 0)]
    calls = [(by("draft_model"), 1), (by("prompt_lookup"), 1.5), (by("custom"), 1)]
    expected = {(query("speculation", title, "A"), 30): passes, (query("speculation", title, "B"), 30): calls}
    assert says(tmp_path, series, expected) == ""


# Bursts

BURSTS = f"specdecode_rollback_bursts_total{{{SERVICE}, {MODEL}}}"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ("0x19 1x20", {19: 0, 20: 1, 21: 1, 23: 1, 25: 0}),
        ("0x19 1 2 3x20", {21: 2, 22: 3, 24: 2, 27: 0}),
        ("_x20 1x20", {19: None, 20: 1, 23: 1, 25: 0}),
        ("5x10 _x14 5x20", {12: 0, 26: 0, 30: 0}),
        ("5x10 _x14 6x20", {26: 1, 40: 0}),
        ("5x19 0x20", {19: 0, 21: 0, 30: 0}),
        ("1x19 0 1x20", {19: 0, 20: 0, 22: 1, 27: 0}),
    ],
    ids=["one", "three", "in a new process", "none in a gap", "one in a gap", "a restart", "one after a restart"],
)
def test_bursts_are_counted_in_whole_pieces_and_none_that_was_before(
    tmp_path: Path, values: str, found: dict[int, int | None]
) -> None:
    asked = query("incident", "Rollback bursts over requests", "C")
    assert "rollback_bursts" in asked
    expected = {(asked, minute): [] if value is None else [("{}", value)] for minute, value in found.items()}
    assert says(tmp_path, {BURSTS: values}, expected) == ""
