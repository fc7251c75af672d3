"""A client as users write it: asks a server on behalf of a tenant, and prints what it is told, one JSON object a call.

No line of it is about traces: it runs under `opentelemetry-instrument`. Its arguments are the server's base URL, a
prompt, and calls: `chat` or `text`, and `, streamed` where the answer is to come as a stream.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from openai import OpenAI
from opentelemetry import context
from opentelemetry.baggage import set_baggage

ASKED: dict[str, Any] = {"model": "default_model", "max_tokens": 6, "temperature": 0}
STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def ask(client: OpenAI, call: str, prompt: str) -> Any:
    """Make one call; return the answer, or the last event of the stream, which has the usage if the server sends it."""
    kind, _, streamed = call.partition(", ")
    options = {**ASKED, **(STREAMED if streamed else {})}
    answer: Any
    if kind == "chat":
        answer = client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
    else:
        answer = client.completions.create(prompt=prompt, **options)
    return list(answer)[-1] if streamed else answer


def main(base_url: str, prompt: str, *calls: str) -> None:
    """Make each call in a session of its own, named as the call is."""
    with OpenAI(base_url=base_url, api_key="unused", max_retries=0) as client:
        for call in calls:
            token = context.attach(set_baggage("session.id", call, set_baggage("tenant.id", "acme")))
            told = ask(client, call, prompt).usage
            context.detach(token)
            usage = [told.prompt_tokens, told.completion_tokens] if told else None
            sys.stdout.write(json.dumps({"call": call, "usage": usage}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
