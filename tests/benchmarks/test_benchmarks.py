"""Every benchmark runs, compares what it says it compares, and its streams are recorded as the real ones are."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import installed, measuring
from benchmarks.all_threads import all_threads
from benchmarks.guard import guard
from benchmarks.host_readings import _no_request, _speed, host_readings
from benchmarks.in_the_loop import in_the_loop
from benchmarks.memory import memory
from benchmarks.outside_the_loop import outside_the_loop
from benchmarks.page import filled
from benchmarks.real_engine import real_engine
from benchmarks.report import machine
from benchmarks.results import Section
from benchmarks.streams import AUTOREGRESSIVE, SPECULATIVE, Engine, autoregressive, paced, speculative, watched
from benchmarks.synthetic_mlx import SyntheticMLX
from benchmarks.thinning import SHAPES, recorded_of, thinning
from benchmarks.token_gaps import token_gaps
from otel_specdecode.generation.request import Request
from otel_specdecode.telemetry.thinning import Thinner
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.fake import FakeClock

pytestmark = pytest.mark.source


def in_small(benchmark: Callable[..., Section], **sizes: int) -> Any:
    return pytest.param(benchmark, sizes, id=benchmark.__name__)


@pytest.mark.parametrize(
    ("benchmark", "sizes"),
    [
        in_small(in_the_loop, tokens=30, repetitions=2),
        in_small(outside_the_loop, requests=1, repetitions=2),
        in_small(all_threads, tokens=30, repetitions=2),
        in_small(token_gaps, tokens=10, repetitions=2),
        in_small(thinning, tokens=600, draws=2),
        in_small(guard, requests=20, repetitions=2),
        pytest.param(memory, {"longest": 9_000}, id="memory", marks=pytest.mark.slow),
    ],
)
def test_a_benchmark_runs(benchmark: Callable[..., Section], sizes: dict[str, int]) -> None:
    section = benchmark(**sizes)
    assert section.rows
    assert all(np.isfinite([row.value.low, row.value.value, row.value.high]).all() for row in section.rows)


@pytest.mark.mlx
def test_the_real_mlx_lm_runs() -> None:
    section = real_engine(tokens=4, repetitions=2)
    rows = [row for row in section.rows if row.case.startswith("MLX-LM")]
    assert {row.case for row in rows} == {
        f"MLX-LM, {mode}, {what}" for mode in ("AR", "draft model") for what in ("speed", "CPU time")
    }
    assert {row.variant for row in rows} == {"bare", "ours"}


def test_the_threads_that_read_the_machine_are_measured_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    section = host_readings(readings=3, repetitions=2, calls=2)
    shares = {(row.case, row.variant): row.value for row in section.rows if row.unit == "% of a core"}
    assert list(shares) == [
        ("request open, nothing else runs", "timer"),
        ("request open, nothing else runs", "ours"),
        ("request open, a thread computes", "timer"),
        ("request open, a thread computes", "ours"),
        ("watcher, nothing else runs", "ours"),
        ("watcher, a thread computes", "ours"),
    ]
    assert all(0 < share.low <= share.high < 100 for share in shares.values())
    assert "no rows for MLX-LM" in section.note
    assert "no rows for llama.cpp" in section.note


def test_no_thread_reads_while_no_request_is_open() -> None:
    section = Section("", "")
    _no_request(section)
    (row,) = section.rows
    assert (row.value.value, row.unit) == (0, "threads")


@pytest.mark.mlx
def test_the_real_mlx_lm_runs_while_memory_is_read() -> None:
    section = Section("", "")
    _speed(section, tokens=4, repetitions=1)
    rows = [row for row in section.rows if row.case.startswith("MLX-LM")]
    assert {row.variant for row in rows} == {"bare", "ours"}


@pytest.mark.parametrize(
    ("benchmark", "sizes", "absent", "told"),
    [
        (in_the_loop, {"tokens": 5}, "llama_cpp", "no rows for llama.cpp"),
        (outside_the_loop, {"requests": 1}, "llama_cpp", "no rows for llama.cpp"),
        (real_engine, {"tokens": 4}, "mlx_lm", "no rows for MLX-LM"),
    ],
)
def test_what_is_not_installed_has_no_rows_and_the_note_says_so(
    benchmark: Callable[..., Section], sizes: dict[str, int], absent: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda module: None if module == absent else find_spec(module))
    section = benchmark(**sizes, repetitions=1)
    engine = {"llama_cpp": "llama.cpp", "mlx_lm": "MLX-LM"}[absent]
    assert told in section.note
    assert not [row.case for row in section.rows if engine in row.case]


def test_a_smoke_run_writes_its_results(tmp_path: Path) -> None:
    assert program.main(["--quick", "--only", "request", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    verdicts = {each["verdict"] for row in found["sections"][0]["rows"] for each in row["comparisons"]}
    assert verdicts <= {"met", "missed", "unresolved", None}
    assert (tmp_path / "pyperf.json").exists()


def test_a_page_takes_the_tables_of_a_run() -> None:
    rows = [
        {
            "case": "stream",
            "variant": "ours",
            "value": {"value": 1.5, "low": 1.25, "high": 1.75},
            "unit": "us",
            "comparisons": [
                {
                    "what": "x floor",
                    "unit": "",
                    "estimate": {"value": 1.5, "low": 1.4, "high": 1.6},
                    "target": {"bound": 2.0, "side": "at most"},
                    "verdict": "met",
                }
            ],
        }
    ]
    found = {"began": machine(), "ended": machine(), "sections": [{"title": "Loop", "rows": rows}]}
    page = "before\n<!-- results: Loop -->\nstale\n<!-- end -->\nafter\n"
    assert filled(page, found).splitlines()[2:-1] == [
        "| case | variant | median [95 %] | compared | target: verdict |",
        "|---|---|---|---|---|",
        "| stream | ours | 1.50 [1.25, 1.75] us | 1.50 [1.40, 1.60] x floor | at most 2: **met** |",
        "<!-- end -->",
    ]


def test_a_page_names_the_versions_of_what_took_part() -> None:
    began = {**machine(), "packages": {"opentelemetry-sdk": "1.37.0", "mlx-lm": "0.28.4"}}
    page = filled("<!-- results: Machine -->\n<!-- end -->\n", {"began": began, "ended": began, "sections": []})
    assert ", opentelemetry-sdk 1.37.0, mlx-lm 0.28.4; load average" in page


def test_variants_take_turns_and_the_first_round_does_not_count() -> None:
    ran: list[str] = []

    def measure(name: str) -> Callable[[], float]:
        return lambda: float(len(ran)) if ran.append(name) is None else 0.0  # type: ignore[func-returns-value]

    samples = measuring.interleaved({name: measure(name) for name in "abc"}, 20)
    rounds = [tuple(ran[place : place + 3]) for place in range(0, len(ran), 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len(set(rounds)) > 1
    assert len(rounds) == 21
    assert min(samples["a"]) > 3


@pytest.mark.parametrize(
    ("engine", "request_made", "rounds"),
    [(autoregressive, AUTOREGRESSIVE, 0), (speculative, SPECULATIVE, 8)],
    ids=["AR", "speculative"],
)
def test_a_synthetic_stream_is_recorded_whole(engine: Engine, request_made: Request, rounds: int) -> None:
    """The worked example: 26 tokens in 8 rounds; the counts add up, or nothing would be written."""
    telemetry, clock = Telemetry(), FakeClock()
    assert len(list(watched(paced(engine, clock, 26_000_000, 26), telemetry.listener(), request_made, clock))) == 26
    attributes = dict(telemetry.span().attributes or {})
    assert attributes["gen_ai.usage.output_tokens"] == 26
    assert attributes["specdecode.verify.passes"] == rounds
    telemetry.shutdown()


@pytest.mark.parametrize("speculates", [False, True], ids=["AR", "speculative"])
def test_the_synthetic_engine_is_recorded_through_the_real_hooks(speculates: bool) -> None:
    telemetry, engine, bare = Telemetry(), SyntheticMLX(), SyntheticMLX()
    engine.instrument(telemetry.listener())
    assert list(engine.request(60, speculative=speculates)) == list(bare.request(60, speculative=speculates))
    attributes = dict(telemetry.span().attributes or {})
    assert attributes["gen_ai.usage.output_tokens"] == 60
    assert attributes["gen_ai.usage.input_tokens"] == 16
    assert (attributes["specdecode.accept_rate"] > 0.5) if speculates else attributes["specdecode.decode.passes"] == 60
    telemetry.shutdown()


def test_a_run_that_records_nothing_fails() -> None:
    """A fault of the library is told once, by a warning; no figure is given then."""
    logging.getLogger("otel_specdecode").warning("a generation could not be recorded")
    with pytest.raises(RuntimeError, match="could not be recorded"):
        measuring.drain()


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_thinned_below_the_rate(shape: str) -> None:
    values = (SHAPES[shape](np.random.default_rng(1), 2_000) * 26e6).astype(int)
    assert sorted(recorded_of(Thinner(1e9), values)) == sorted(values)


def test_an_engine_ends_where_it_is_told_and_its_clock_advances() -> None:
    clock = FakeClock(0)
    assert len(list(islice(paced(autoregressive, clock, 5_000_000, 7)(None), 100))) == 7
    assert clock.now == 35_000_000
