"""The whole demo with the real engines, as a user starts it: in a process of its own, its output in a pipe.

What holds for every choice of engines is tested on each alone and on both together.
"""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.demo import files
from otel_specdecode.telemetry.names import Attr, Metric, Metrics
from otel_specdecode.testing.checker import assert_conformant
from otel_specdecode.testing.observed import Observed, from_otlp

for package in ("bokeh", "click", "gguf", "jinja2", "rich", "opentelemetry.exporter.otlp.proto.common"):
    pytest.importorskip(package, reason="needs the [demo] extra")

pytestmark = pytest.mark.slow

SMALL = ("--tokens", "24", "--prompts", "2")
REQUESTS_AN_ENGINE = 16
MODEL_DRAFTS = ("draft-kd", "draft", "draft-weak")
DRAFTS = {"mlx": (*MODEL_DRAFTS, "noisy copy"), "llama_cpp": (*MODEL_DRAFTS, "prompt lookup")}
TITLES = {"mlx": "MLX-LM", "llama_cpp": "llama.cpp"}

# An environment in which MLX and what comes with it cannot be imported.
WITHOUT_MLX = """
import sys
sys.modules.update(dict.fromkeys(("mlx", "mlx.core", "mlx_lm", "tokenizers", "transformers")))
"""


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "FORCE_COLOR"))}
    return {**kept, "NO_PROXY": "127.0.0.1", **more}


def command(*arguments: str, before: str = "") -> list[str]:
    return [sys.executable, "-c", f"{before}from otel_specdecode.cli import main; main()", "demo", *arguments]


def demo(*arguments: str, before: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, before=before),
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@dataclass(frozen=True)
class Small:
    """One small run on the engines of these names."""

    engines: tuple[str, ...]
    out: Path
    text: str
    errors: str

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / name).read_text(encoding="utf-8").splitlines()]

    def observed(self) -> Observed:
        return from_otlp([*self.lines(files.SPANS), self.lines(files.METRICS)[-1]])

    def page(self) -> str:
        return (self.out / files.PAGE).read_text(encoding="utf-8")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("mlx",), marks=pytest.mark.mlx),
        pytest.param(("llama_cpp",), marks=pytest.mark.llama_cpp),
        pytest.param(("mlx", "llama_cpp"), marks=[pytest.mark.mlx, pytest.mark.llama_cpp]),
    ],
    ids=" and ".join,
)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Small:
    """One engine by its name, llama.cpp where MLX cannot be had; or all, by naming none."""
    engines: tuple[str, ...] = request.param
    if "llama_cpp" in engines:
        pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    out = tmp_path_factory.mktemp("demo") / "demo-out"
    chosen = ("--engine", *engines) if len(engines) == 1 else ()
    finished = demo(*SMALL, *chosen, "--out", str(out), before="" if "mlx" in engines else WITHOUT_MLX)
    assert finished.returncode == 0, finished.stderr
    return Small(engines, out, finished.stdout, finished.stderr)


def test_a_pipe_gets_whole_words_and_no_colours(small: Small) -> None:
    assert "\x1b" not in small.text + small.errors
    assert "…" not in small.text
    drafts = {draft for engine in small.engines for draft in DRAFTS[engine]}
    for word in (*drafts, Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS, Metrics.SPECDECODE_ROUND_DURATION.name):
        assert word in small.text
    said = f"{REQUESTS_AN_ENGINE} greedy requests over 2 prompts, at most 24 tokens each"
    assert small.text.count(said) == len(small.engines)
    assert "Traceback" not in small.errors


def test_every_mode_has_its_numbers(small: Small) -> None:
    """Recorded durations come from metrics of one request after the other; nothing else may have read them."""
    recorded = re.findall(rf"{Metrics.SPECDECODE_ROUND_DURATION.name} +recorded +(.*)", small.text)
    verdicts = [line for line in small.text.splitlines() if "too few prompts to tell" in line]
    drafts = [draft for engine in small.engines for draft in DRAFTS[engine]]
    assert [line.partition("too few")[0].strip() for line in verdicts] == drafts
    assert not any("absent" in line for line in verdicts)
    assert sum(int(cell) for row in recorded for cell in row.replace(",", "").split()) > 0
    assert small.errors == ""


def test_each_engine_has_a_section_in_the_order_of_the_engines(small: Small) -> None:
    titles = [TITLES[engine] for engine in small.engines]
    assert [line for line in small.text.splitlines() if line in TITLES.values()] == titles
    assert re.findall(r"<h2>(.*?)</h2>", small.page())[:-2] == titles


def test_what_is_said_of_the_names_is_what_the_spans_have(small: Small) -> None:
    keys: dict[tuple[Any, Any], set[str]] = {}
    for span in small.observed().spans:
        kind = span.attributes[Attr.GEN_AI_PROVIDER_NAME], span.attributes[Attr.SPECDECODE_MODE]
        keys.setdefault(kind, set()).update(span.attributes)
    assert len(keys) == 2 * len(small.engines)
    everywhere = set.intersection(*keys.values())
    (said,) = [line for line in small.text.splitlines() if "span attributes were seen on" in line]
    shared, _, rest = said.partition("Besides:")
    assert shared.startswith(f"The same {len(everywhere)} span attributes")
    assert {name for name in set.union(*keys.values()) if name in rest} == set.union(*keys.values()) - everywhere
    assert said in html.unescape(small.page())


def test_the_engines_share_every_field_of_ours_but_what_one_alone_can_tell(small: Small) -> None:
    """MLX is lazy, so only llama.cpp can tell how long its draft took; only MLX has an allocator that can be asked."""
    alone = {
        Attr.SPECDECODE_DRAFT_DURATION,
        Metrics.SPECDECODE_ENGINE_MEMORY_USAGE.name,
        Metrics.SPECDECODE_ENGINE_MEMORY_PEAK.name,
    }
    observed = small.observed()
    emitted = {
        engine: {
            *(
                key
                for span in observed.spans
                if span.attributes[Attr.GEN_AI_PROVIDER_NAME] == engine
                for key in span.attributes
                if key.startswith("specdecode.")
            ),
            *(
                metric.name
                for metric in observed.metrics
                if any(point.attributes.get(Attr.GEN_AI_PROVIDER_NAME) == engine for point in metric.points)
            ),
        }
        for engine in small.engines
    }
    assert set.union(*emitted.values()) - set.intersection(*emitted.values()) <= alone
    assert (Attr.SPECDECODE_DRAFT_DURATION in set.union(*emitted.values())) == ("llama_cpp" in small.engines)


def test_greedy_texts_agree(small: Small) -> None:
    said = "Every speculative request emitted the very text of its autoregressive one."
    assert small.text.count(said) == len(small.engines)
    compared = "MLX-LM and llama.cpp emitted the same autoregressive text for"
    assert (compared in small.text) == (len(small.engines) > 1)


def test_every_prompt_is_read_whole(small: Small) -> None:
    """No request finds the beginning of its prompt in a cache, so both engines do the same work before a token."""
    for span in small.observed().spans:
        assert not span.attributes.get(Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS)


def test_the_last_lines_name_the_files_and_the_next_step(small: Small) -> None:
    last = small.text.splitlines()[-8:]
    for name, line in zip((files.PAGE, files.SPANS, files.METRICS, files.LOGS), last, strict=False):
        assert str(small.out / name) in line
        assert (small.out / name).exists()
    assert "otel_specdecode.instrument()" in last[-1]


def test_the_files_are_conformant_otlp(small: Small) -> None:
    lines = [line for name in (files.SPANS, files.METRICS, files.LOGS) for line in small.lines(name)]
    assert_conformant(otlp=lines)
    spans = [
        span
        for line in small.lines(files.SPANS)
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    assert len(spans) == REQUESTS_AN_ENGINE * len(small.engines)
    for span in spans:
        assert re.fullmatch(r"[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch(r"[0-9a-f]{16}", span["spanId"])
        assert span["kind"] == 1


@pytest.mark.parametrize(
    ("metric", "keys"),
    [
        (Metrics.SPECDECODE_ROLLBACKS, [Attr.SPECDECODE_ROLLBACKS]),
        (Metrics.SPECDECODE_VERIFY_PASSES, [Attr.SPECDECODE_VERIFY_PASSES]),
        (Metrics.SPECDECODE_DECODE_PASSES, [Attr.SPECDECODE_DECODE_PASSES]),
        (Metrics.SPECDECODE_DRAFT_PASSES, [Attr.SPECDECODE_DRAFT_PASSES]),
        (Metrics.SPECDECODE_DRAFT_TOKENS, [Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS]),
        (Metrics.SPECDECODE_DRAFT_ACCEPTED_BY_POSITION, [Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS]),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_spans_add_up_to_the_counters(small: Small, metric: Metric, keys: list[str]) -> None:
    observed = small.observed()
    counted = sum(p.value or 0 for m in observed.metrics if m.name == metric.name for p in m.points)
    assert counted == sum(span.attributes[key] for span in observed.spans for key in keys)
    assert counted > 0


class Loads(HTMLParser):
    """Collects what a page loads or links to, and the text of its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.headings: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data", "action", "srcset")]
        self.loads += [tag] if tag in ("link", "iframe", "base") else []
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("h2", "h3"):
            self.headings.append(data)


def test_the_page_loads_nothing_and_has_the_plots(small: Small) -> None:
    text = small.page()
    page = Loads()
    page.feed(text)
    assert page.loads == []
    assert "default-src 'none'" in text
    assert "@import" not in text.partition("</style>")[0]
    assert len(text) < 3_000_000
    for heading in (
        "Speed-up over autoregressive",
        "Accept rate over time",
        "Rollbacks over time",
        "Round duration",
        "Accepted tokens per round",
        "Time per token",
        "Peak memory over time",
    ):
        assert heading in page.headings
    assert text.count('data-root-id="') == 7 * len(small.engines)


def test_the_page_shows_every_attribute_of_a_speculative_span_with_its_meaning(small: Small) -> None:
    text = small.page().partition("One span of each mode")[2]
    rows = re.findall(r"<tr><td><code>([^<]+)</code></td>.*?<td class=\"meaning\">([^<]*)</td></tr>", text, re.DOTALL)
    shown = {html.unescape(name): html.unescape(meaning) for name, meaning in rows}
    for span in small.observed().spans:
        if span.attributes.get(Attr.SPECDECODE_DRAFT_MODEL) in ("draft-kd", None):
            assert set(span.attributes) <= set(shown)
    assert all(shown.values())
    assert "never 0 in autoregressive mode" in shown[Attr.SPECDECODE_ACCEPT_RATE]


@pytest.mark.mlx
def test_ctrl_c_ends_it_with_a_short_message_and_leaves_the_earlier_run(tmp_path: Path) -> None:
    earlier = dict.fromkeys((files.PAGE, files.SPANS, files.METRICS, files.LOGS), "earlier")
    files.write(tmp_path, earlier)
    with subprocess.Popen(
        command("--out", str(tmp_path)),
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Requests"):
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == f"Stopped before the end; {tmp_path} may lack this run's files."
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == earlier


@pytest.fixture
def collector() -> Iterator[tuple[str, list[str]]]:
    """A server on the loopback that takes OTLP over HTTP, and the paths that were asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.mlx
def test_an_endpoint_gets_the_telemetry_as_well(tmp_path: Path, collector: tuple[str, list[str]]) -> None:
    endpoint, paths = collector
    finished = demo(
        *("--tokens", "8", "--prompts", "1", "--out", str(tmp_path / "out")),
        OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )
    assert finished.returncode == 0, finished.stderr
    assert f"Exported to {endpoint} as well." in finished.stdout
    assert {"/v1/traces", "/v1/metrics"} <= set(paths)
    assert (tmp_path / "out" / files.PAGE).exists()


@pytest.mark.mlx
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_endpoint_that_does_not_answer_costs_little_time_and_one_line(tmp_path: Path, protocol: str) -> None:
    started = time.monotonic()
    finished = demo(
        *("--tokens", "8", "--prompts", "1", "--out", str(tmp_path / "out")),
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
    )
    assert finished.returncode == 0, finished.stderr
    assert "http://127.0.0.1:9 did not take everything; the files are complete." in finished.stdout
    assert "Traceback" not in finished.stderr
    assert (tmp_path / "out" / files.PAGE).exists()
    assert time.monotonic() - started < 120
