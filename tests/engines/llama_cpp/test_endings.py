"""How streams end on the real llama.cpp: one span each, with the right status and finish reason."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from tests.engines.llama_cpp.calling import (
    ENTRIES,
    PROMPT,
    TEXTS,
    K,
    Walk,
    call,
    ended,
    llama_cpp,
    load,
    patterned,
    take,
)
from tests.engines.llama_cpp.conftest import Pair
from tests.engines.spans import attributes, counts
from tests.garbage import collect

pytestmark = pytest.mark.llama_cpp

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=[None, K], ids=["autoregressive", "speculative"])
def llama(request: pytest.FixtureRequest, cycle: Pair) -> Any:
    """The target, without a draft and with one."""
    return load(cycle, request.param)


@pytest.fixture(scope="module")
def eos(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """EOS is the third token after a chat prompt, and the draft agrees up to it and on it."""
    return patterned(tmp_path_factory.mktemp("eos"), eos_after=2, pattern=[True] * 8)


# Complete


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("entry", TEXTS)
def test_max_tokens_completes_a_call(entry: str, stream: bool, llama: Any, telemetry: Telemetry) -> None:
    """Whole or streamed: length, and every token counted."""
    result = call(entry, llama, 7, stream=stream)
    reason = (list(result)[-1] if stream else result)["choices"][0]["finish_reason"]
    assert ended(telemetry.span()) == (StatusCode.UNSET, reason, 7)
    assert reason == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("k", [None, K])
def test_eos_completes_a_call(k: int | None, stream: bool, eos: Pair, telemetry: Telemetry) -> None:
    """EOS, inside an accepted draft too: stop, EOS counted, the rest of the draft unverified and no rollback."""
    assert eos.truth is not None
    result = call("completion", load(eos, k), stream=stream, prompt=[eos.truth.chat_end])
    if stream:
        list(result)
    span = telemetry.span()
    assert ended(span) == (StatusCode.UNSET, "stop", 3)
    if k:
        assert counts(span) == (2, 0, 2)
        assert attributes(span)[Attr.SPECDECODE_ROLLBACKS] == 0
        assert telemetry.total("specdecode.verify.passes", round_outcome="cut") == 1


@pytest.mark.parametrize("drop", ["break", "close"])
def test_a_token_loop_that_is_left_on_eos_is_complete(drop: str, eos: Pair, telemetry: Telemetry) -> None:
    """generate() itself never stops there; who runs it does, and that is its end."""
    assert eos.truth is not None
    llama = load(eos, None)
    loop = call("generate", llama, prompt=[eos.truth.chat_end])
    for token in loop:
        if token == llama.token_eos():
            break
    if drop == "close":
        loop.close()
    del loop
    assert ended(telemetry.span()) == (StatusCode.UNSET, "stop", 3)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_completes_a_call(stream: bool, llama: Any, cycle: Pair, telemetry: Telemetry) -> None:
    """The token that ended it was emitted, though its text is not handed out."""
    assert cycle.truth is not None
    fourth = llama.detokenize(cycle.truth.tokens(PROMPT[-1], 4)[3:]).decode()
    result = call("completion", llama, stream=stream, stop=[fourth.strip()])
    text = "".join(each["choices"][0]["text"] for each in (result if stream else [result]))
    assert fourth.strip() not in text
    assert ended(telemetry.span()) == (StatusCode.UNSET, "stop", 4)


@pytest.mark.parametrize("entry", ["completion", "generate"])
def test_stopping_criteria_complete_a_call(entry: str, llama: Any, telemetry: Telemetry) -> None:
    """The token that met them was sampled and never emitted."""
    asked: list[int] = []

    def criterion(*_: Any) -> bool:
        asked.append(1)
        return len(asked) >= 4

    criteria = llama_cpp.StoppingCriteriaList([criterion])
    list(call(entry, llama, stopping_criteria=criteria))
    assert ended(telemetry.span()) == (StatusCode.UNSET, "stop", 3)


@pytest.mark.parametrize("drop", ["break", "close", "throw"])
@pytest.mark.parametrize("entry", TEXTS)
def test_a_stream_dropped_after_its_final_chunk(entry: str, drop: str, llama: Any, telemetry: Telemetry) -> None:
    """A consumer that breaks on the finish reason, as most do, has a complete stream."""
    stream = call(entry, llama, 5)
    for chunk in stream:
        if chunk["choices"][0]["finish_reason"]:
            break
    if drop == "close":
        stream.close()
    elif drop == "throw":
        with pytest.raises(TimeoutError):
            stream.throw(TimeoutError())
    del stream
    assert ended(telemetry.span()) == (StatusCode.UNSET, "length", 5)


# What a cut leaves


@pytest.mark.parametrize("limit", range(1, 9))
def test_max_tokens_inside_a_draft(limit: int, tmp_path: Path, telemetry: Telemetry) -> None:
    """llama.cpp does not clip a draft to what is left: the rest is unverified, whichever token is the last."""
    llama = load(patterned(tmp_path, agreement=1.0), 3)
    call("completion", llama, limit, stream=False)
    span, rounds = telemetry.span(), -(-(limit - 1) // 4)
    accepted = limit - 1 - (limit - 1) // 4
    assert counts(span) == (accepted, 0, 3 * rounds - accepted)
    assert attributes(span)[Attr.SPECDECODE_VERIFY_PASSES] == rounds


# Closed


@pytest.mark.parametrize("how", ["close", "break", "collected", "other thread"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_stream_dropped_early(entry: str, how: str, llama: Any, telemetry: Telemetry) -> None:
    """close, break, a collector run and a close on other threads: one span, UNSET, finish reason closed."""
    stream = call(entry, llama)
    take(entry, stream, 3)
    if how == "close":
        stream.close()
    elif how == "break":
        del stream
    elif how == "collected":
        cell: dict[str, Any] = {"stream": stream}
        cell["self"] = cell
        dropped = weakref.ref(stream)
        del stream, cell
        collector = threading.Thread(target=collect, args=(dropped,))
        collector.start()
        collector.join()
    else:
        closer = threading.Thread(target=stream.close)
        closer.start()
        closer.join()
    span = telemetry.span()
    assert ended(span) == (StatusCode.UNSET, "closed", 3)
    assert Attr.ERROR_TYPE not in attributes(span)
    assert telemetry.total("specdecode.request.active") == 0


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_stream_never_iterated_leaves_nothing(entry: str, llama: Any, telemetry: Telemetry) -> None:
    """No span, nothing counted, nothing active."""
    stream = call(entry, llama)
    del stream
    assert telemetry.spans() == ()
    assert telemetry.points("specdecode.request.started") == []


# Errors


def fail_at(llama: Any, number: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one pass of the target raise, as it does where a device fails."""
    decode, passes = llama._ctx.decode, []

    def failing(batch: Any) -> None:
        passes.append(1)
        if len(passes) == number:
            raise error
        decode(batch)

    monkeypatch.setattr(llama._ctx, "decode", failing)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("entry", ENTRIES)
def test_an_error_inside_the_engine(
    entry: str,
    stream: bool,
    error: type[BaseException],
    llama: Any,
    telemetry: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a pass raises, KeyboardInterrupt included: ERROR, error.type, finish reason error, no text of it."""
    fail_at(llama, 3, error("secret prompt"), monkeypatch)
    with pytest.raises(error, match="secret"):
        list(call(entry, llama, stream=stream))
    span = telemetry.span()
    status, reason, tokens = ended(span)
    assert (status, reason) == (StatusCode.ERROR, "error")
    assert tokens >= 2
    assert attributes(span)[Attr.ERROR_TYPE] == error.__name__
    assert "secret" not in span.to_json()
    assert telemetry.total("specdecode.request.active") == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("entry", ["completion", "generate"])
def test_an_interrupt_between_passes(entry: str, stream: bool, llama: Any, telemetry: Telemetry) -> None:
    """Raised by a stopping criterion, after the token was sampled and before it was emitted."""
    asked: list[int] = []

    def criterion(*_: Any) -> bool:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return False

    criteria = llama_cpp.StoppingCriteriaList([criterion])
    with pytest.raises(KeyboardInterrupt):
        list(call(entry, llama, stream=stream, stopping_criteria=criteria))
    assert ended(telemetry.span()) == (StatusCode.ERROR, "error", 2)
    assert attributes(telemetry.span())[Attr.ERROR_TYPE] == "KeyboardInterrupt"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # so llama-cpp-python lets it go
def test_an_error_in_a_logits_processor_is_the_engines_to_swallow(llama: Any, telemetry: Telemetry) -> None:
    """It is called through C, where no exception passes: the bare call is complete, and so is the watched one."""

    def processor(*_: Any) -> Any:
        raise KeyboardInterrupt

    processors = llama_cpp.LogitsProcessorList([processor])
    result = call("completion", llama, 4, stream=False, logits_processor=processors)
    assert result["choices"][0]["finish_reason"] == "length"
    assert ended(telemetry.span()) == (StatusCode.UNSET, "length", 4)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("entry", TEXTS)
def test_a_prompt_that_does_not_fit(entry: str, stream: bool, cycle: Pair, telemetry: Telemetry) -> None:
    """The engine refuses before any pass: an error span without tokens, and no text of the message."""
    llama = cycle.llama(n_ctx=256)
    words = llama.detokenize([301] * 300).decode()
    messages = [{"role": "user", "content": words}]
    long = {"prompt": words} if entry == "completion" else {"messages": messages}
    with pytest.raises(ValueError, match="exceed context window"):
        list(call(entry, llama, stream=stream, **long))
    span = telemetry.span()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)[Attr.ERROR_TYPE] == "ValueError"
    assert attributes(span)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 0
    assert "exceed" not in span.to_json()


def test_a_token_loop_that_outgrows_the_context(cycle: Pair, telemetry: Telemetry) -> None:
    """The engine's own error, with every token before it."""
    emitted: list[int] = []
    with pytest.raises(RuntimeError, match="llama_decode"):
        emitted.extend(cycle.llama(n_ctx=256).generate(PROMPT, temp=0.0))
    status, reason, tokens = ended(telemetry.span())
    assert (status, reason, tokens) == (StatusCode.ERROR, "error", 256 - len(PROMPT) + 1)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_exception_thrown_in(entry: str, llama: Any, telemetry: Telemetry) -> None:
    """throw() into a running stream: that exception to the caller, and an error span."""
    stream = call(entry, llama)
    take(entry, stream, 2)
    with pytest.raises(TimeoutError):
        stream.throw(TimeoutError())
    assert ended(telemetry.span()) == (StatusCode.ERROR, "error", 2)
    assert attributes(telemetry.span())[Attr.ERROR_TYPE] == "TimeoutError"


def test_a_target_pass_that_raises_leaves_its_draft_unverified(
    cycle: Pair, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round began when the pass was called: its tokens are proposed and unverified."""
    llama = load(cycle, K)
    fail_at(llama, 3, RuntimeError("out of memory"), monkeypatch)
    with pytest.raises(RuntimeError):
        call("completion", llama, stream=False)
    found = attributes(telemetry.span())
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == 2
    assert found[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] == 2 * K
    assert found[Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS] == K


def test_a_draft_that_raises(cycle: Pair, telemetry: Telemetry) -> None:
    """The error is the caller's to see; no round began."""

    class Failing(Walk):
        def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
            raise RuntimeError("draft")

    assert cycle.truth is not None
    with pytest.raises(RuntimeError, match="draft"):
        call("completion", cycle.llama(Failing(cycle.truth)), stream=False)
    found = attributes(telemetry.span())
    assert ended(telemetry.span()) == (StatusCode.ERROR, "error", 1)
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == found[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] == 0


def script(program: str) -> str:
    """Run a program in a process of its own; return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# Processes

PROGRAM = """
    import os, sys, tempfile
    from pathlib import Path
    from llama_cpp import Llama
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
    import otel_specdecode
    from otel_specdecode.tiny_pair.cycle import build
    from otel_specdecode.tiny_pair.gguf import convert

    provider = TracerProvider()
    line = lambda span: f"{span.name} {span.attributes.get('gen_ai.response.finish_reasons')}" + chr(10)
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
    trace.set_tracer_provider(provider)
    otel_specdecode.instrument()
    folder = Path(tempfile.mkdtemp())
    model = convert(build(folder).target, folder / "cycle.gguf", "f32")
    llama = Llama(str(model), n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)

    def stream(llama):
        return llama.create_completion([301], max_tokens=9, temperature=0.0, stream=True)
"""


@pytest.mark.parametrize("kept", ["by the module", "in a circle", "on a thread"])
def test_a_stream_that_is_open_as_the_process_ends(kept: str) -> None:
    """The process ends well and says nothing; what was finished is delivered."""
    keep = {
        "by the module": "open_stream = stream(llama); next(open_stream)",
        "in a circle": "cell = {'stream': stream(llama)}; next(cell['stream']); cell['self'] = cell; del cell",
        "on a thread": (
            "import threading; opened = stream(llama)\n"
            "thread = threading.Thread(target=next, args=(opened,)); thread.start(); thread.join()"
        ),
    }[kept]
    printed = script(textwrap.dedent(PROGRAM) + "list(stream(llama))\n" + keep)
    lines = printed.splitlines()
    assert lines[0] == "text_completion cycle ('length',)"
    assert set(lines[1:]) <= {"text_completion cycle ('closed',)"}
    assert len(lines) <= 2


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on this system")
def test_a_fork_in_the_middle_of_a_stream() -> None:
    """The child never ends its parent's span, though it goes on with the stream, and records its own."""
    printed = script(
        PROGRAM
        + """
    import warnings
    warnings.simplefilter("ignore")
    opened = stream(llama)
    next(opened)
    otel_specdecode.flush()
    child = os.fork()
    if child == 0:
        print("child took", len(list(opened)), flush=True)
        list(stream(llama))
        otel_specdecode.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print("parent closes", flush=True)
    opened.close()
    otel_specdecode.flush()
        """
    )
    assert printed.splitlines() == [
        "child took 9",
        "text_completion cycle ('length',)",
        "parent closes",
        "text_completion cycle ('closed',)",
    ]
