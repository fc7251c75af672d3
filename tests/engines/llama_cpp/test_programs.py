"""Whole programs in processes of their own: every way to switch the instrumentation on."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from otel_specdecode.testing.capture import capture
from tests.engines.llama_cpp.calling import complete
from tests.engines.llama_cpp.conftest import Pair

pytestmark = pytest.mark.llama_cpp

ROOT = Path(__file__).parents[3]


def script(program: str, *args: str) -> str:
    """Run a program in a process of its own; return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(program), *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_instrumenting_before_the_engine_is_imported(cycle: Pair) -> None:
    """instrument() imports no engine; the engine is hooked when the program imports it."""
    printed = script(
        """
        import sys
        from otel_specdecode.testing import capture
        with capture() as telemetry:
            assert "llama_cpp" not in sys.modules
            from llama_cpp import Llama
            llama = Llama(sys.argv[1], n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)
            llama("hello", max_tokens=3)
            print(telemetry.span().name)
        """,
        str(cycle.target),
    )
    assert printed == "text_completion cycle-target\n"


def test_uninstrumenting_before_the_engine_is_imported(cycle: Pair) -> None:
    """It then stays bare as it is imported, and is hooked with the next instrument()."""
    printed = script(
        """
        import sys
        import otel_specdecode
        from otel_specdecode.testing import capture
        with capture():
            pass
        import llama_cpp
        print(hasattr(llama_cpp.Llama.create_completion, "__wrapped__"))
        with capture() as telemetry:
            llama = llama_cpp.Llama(sys.argv[1], n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)
            llama("hello", max_tokens=3)
            print(telemetry.span().name)
        """,
        str(cycle.target),
    )
    assert printed == "False\ntext_completion cycle-target\n"


def test_the_drop_in_module_needs_no_other_line(cycle: Pair) -> None:
    """One import line changed: the engine's own class, instrumented, with all that stands beside it."""
    printed = script(
        """
        import sys
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
        provider = TracerProvider()
        exporter = ConsoleSpanExporter(formatter=lambda span: span.name + chr(10))
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        from otel_specdecode.llama_cpp import Llama, LlamaGrammar, StoppingCriteriaList, llama_free
        import llama_cpp, otel_specdecode.llama_cpp
        assert Llama is llama_cpp.Llama
        missing = [name for name in dir(llama_cpp) if not name.startswith("_")]
        missing = [name for name in missing if not hasattr(otel_specdecode.llama_cpp, name)]
        assert not missing, missing
        llama = Llama(sys.argv[1], n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)
        llama.create_chat_completion([{"role": "user", "content": "hello"}], max_tokens=3)
        """,
        str(cycle.target),
    )
    assert printed == "chat cycle-target\n"


def test_a_pickle_is_read_where_this_package_is_not(cycle: Pair, tmp_path: Path) -> None:
    """A worker process without it gets a working Llama."""
    llama = cycle.llama(LlamaPromptLookupDecoding(num_pred_tokens=3), n_ctx=256)
    with capture():
        text = complete(llama, 3)["choices"][0]["text"]
        (tmp_path / "llama.pickle").write_bytes(pickle.dumps(llama))
    printed = script(
        """
        import pickle, sys
        sys.modules["otel_specdecode"] = None  # as if it were not installed
        with open(sys.argv[1], "rb") as file:
            llama = pickle.load(file)
        print(llama.create_completion([301, 302, 303], max_tokens=3, temperature=0.0)["choices"][0]["text"])
        """,
        str(tmp_path / "llama.pickle"),
    )
    assert printed == f"{text}\n"
