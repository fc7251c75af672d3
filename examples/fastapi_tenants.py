"""A web service whose generations carry the tenant of their request, as children of the request's own span.

    curl localhost:8000/answers -H 'X-Tenant: acme' --json '{"question": "What is a crab?", "stream": true}'

On llama.cpp, since it gives whole answers and streams of the same chat; for MLX take `Model` from asyncio_service.py.
Arguments: the GGUF files of target and draft; without them, the tiny pair that comes with the package (its conversion
needs the packages gguf and safetensors). PORT is the port, 8000 if it is not set. Where telemetry goes is said by the
OTEL_* variables; OTEL_TRACES_EXPORTER=console prints spans.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse, Response, StreamingResponse
from opentelemetry import baggage, context
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

import otel_specdecode
from otel_specdecode.llama_cpp import Llama, ModelDraft


class Model:
    """A target with its draft, for one request at a time.

    A `Llama` has no lock, and two requests that take turns on it spoil each other's output: hence the lock. Every call
    runs on one thread, so that the event loop stays free, and so that a stream whose client went away is closed only
    after the chunk it is at.
    """

    def __init__(self, target: str, draft: str) -> None:
        self._llama = Llama(target, n_ctx=1024, logits_all=True, verbose=False)
        self._draft = self._llama.draft_model = ModelDraft(draft, self._llama, num_pred_tokens=4)
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    async def answer(self, question: str) -> str:
        """Return the whole answer."""
        async with self._turn:
            completion = await self._run(self._chat(question, stream=False))
        return str(completion["choices"][0]["message"]["content"])

    async def stream(self, question: str) -> AsyncIterator[str]:
        """Yield the answer as it comes; the generation ends where the caller leaves off."""
        async with self._turn:
            chunks = await self._run(self._chat(question, stream=True))
            try:
                while (chunk := await self._run(next, chunks, None)) is not None:
                    yield chunk["choices"][0]["delta"].get("content", "")
            finally:
                self._thread.submit(chunks.close)  # not awaited: this task may be about to end

    def close(self) -> None:
        """Wait for the call that runs, and free the models."""
        self._thread.shutdown()
        self._llama.close()
        self._draft.close()

    def _chat(self, question: str, *, stream: bool) -> Callable[[], Any]:
        messages = [{"role": "user", "content": question}]
        return partial(self._llama.create_chat_completion, messages, stream=stream, max_tokens=256, temperature=0)

    async def _run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        # A thread pool does not hand the context on, and in it are the request's span and its tenant.
        in_context = partial(copy_context().run, call, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, in_context)


class TenantBaggage:
    """Puts the tenant of the header X-Tenant in the baggage, in the place of any that the caller's baggage names.

    Whoever reaches this service can claim to be any tenant: for strangers, take the tenant from what authenticates.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tenant = Headers(scope=scope).get("x-tenant", "") if scope["type"] == "http" else ""
        token = context.attach(baggage.set_baggage("specdecode.tenant.id", tenant))
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)


class Question(BaseModel):
    question: str
    stream: bool = False


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        app.state.model = Model(*(sys.argv[1:] or tiny_pair(Path(folder))))
        yield
        app.state.model.close()
    otel_specdecode.flush()  # on SIGTERM nothing runs after this


def tiny_pair(folder: Path) -> list[str]:
    from otel_specdecode.tiny_pair import model_path
    from otel_specdecode.tiny_pair.gguf import convert

    return [str(convert(model_path(model), folder / f"{model}.gguf")) for model in ("target", "draft-kd")]


otel_specdecode.configure(service_name="fastapi-tenants")
app = FastAPI(lifespan=lifespan)
app.add_middleware(TenantBaggage)
FastAPIInstrumentor.instrument_app(app, exclude_spans=["receive", "send"])  # else two spans for each chunk of a stream


@app.post("/answers")
async def answers(asked: Question, x_tenant: Annotated[str, Header(min_length=1)]) -> Response:  # noqa: ARG001
    model: Model = app.state.model
    if asked.stream:
        return StreamingResponse(model.stream(asked.question), media_type="text/plain")
    return JSONResponse({"answer": await model.answer(asked.question)})


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
