"""Several requests at once on an event loop: each generation is a child of its task's span; one task is cancelled.

Cancelling a task ends its generation at the next token, with finish reason `closed`. Arguments: the folders or
repositories of target and draft for MLX; without them, the tiny pair that comes with the package. Where spans go is
said by the OTEL_* variables; OTEL_TRACES_EXPORTER=console prints them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import Any

from opentelemetry import trace

import otel_specdecode
from otel_specdecode.mlx_lm import load, stream_generate

QUESTIONS = ("What is a crab?", "List 5 animals.", "Count from 7 to 22.")
tracer = trace.get_tracer("asyncio-service")


class Model:
    """A target with its draft, for one request at a time.

    Every call runs on one thread: the event loop stays free, and MLX wants a generator to be closed on the thread that
    it ran on.
    """

    def __init__(self, target: str, draft: str) -> None:
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._model, self._tokenizer = self._thread.submit(load, target).result()
        self._draft, _ = self._thread.submit(load, draft).result()

    async def stream(self, question: str) -> AsyncIterator[str]:
        """Yield the answer as it comes; the generation ends where the caller leaves off."""
        async with self._turn:
            responses = await self._run(self._generate, question)
            try:
                while (response := await self._run(next, responses, None)) is not None:
                    yield response.text
            finally:
                self._thread.submit(responses.close)  # not awaited: this task may be about to end

    def close(self) -> None:
        """Wait for the call that runs."""
        self._thread.shutdown()

    def _generate(self, question: str) -> Any:
        messages = [{"role": "user", "content": question}]
        prompt = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        draft = {"draft_model": self._draft, "num_draft_tokens": 4}
        return stream_generate(self._model, self._tokenizer, prompt, max_tokens=256, **draft)

    async def _run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        # A thread pool does not hand the context on, and in it is the span that is to be the generation's parent.
        in_context = partial(copy_context().run, call, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, in_context)


async def ask(model: Model, question: str, started: asyncio.Event) -> str:
    answer = ""
    try:
        with tracer.start_as_current_span("request"):
            async with aclosing(model.stream(question)) as texts:
                async for text in texts:
                    answer += text
                    started.set()
    finally:
        started.set()  # nobody is to wait for one that failed
    return answer


async def serve(model: Model) -> None:
    unwanted = asyncio.Event()
    cancelled = asyncio.create_task(ask(model, "Tell me a story about a fox.", unwanted))
    others = [asyncio.create_task(ask(model, question, asyncio.Event())) for question in QUESTIONS]
    await unwanted.wait()
    cancelled.cancel()
    for answer in await asyncio.gather(cancelled, *others, return_exceptions=True):
        print(answer if isinstance(answer, str) else type(answer).__name__)


def main() -> None:
    otel_specdecode.configure(service_name="asyncio-service")
    names = sys.argv[1:]
    if not names:
        from otel_specdecode.tiny_pair import model_path

        names = [str(model_path("target")), str(model_path("draft-kd"))]
    model = Model(*names)
    try:
        asyncio.run(serve(model))
    finally:
        model.close()
        if not otel_specdecode.flush():
            print("some telemetry was not exported in time", file=sys.stderr)


if __name__ == "__main__":
    main()
