"""Prompt and completion text, for users who opted in."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from otel_specdecode.generation.observer import Content, text_part
from otel_specdecode.telemetry.names import Attr

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable of the GenAI instrumentations: one of four values, no content unless set."""

Capture = Literal["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]


def chosen_capture() -> Capture:
    """Return where content goes by the environment; unknown values mean nowhere."""
    chosen = os.environ.get(CAPTURE, "").strip().upper()
    return chosen if chosen in ("SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT") else "NO_CONTENT"  # type: ignore[return-value]


def messages(content: Content, finish_reason: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return the content as input and output messages of the GenAI conventions."""
    text = "".join(content.completion)
    parts = [text_part(text)] if text or not content.tool_calls else []
    output: dict[str, Any] = {"role": "assistant", "parts": [*parts, *content.tool_calls]}
    if finish_reason is not None:
        output["finish_reason"] = finish_reason
    return {
        Attr.GEN_AI_INPUT_MESSAGES: [
            {"role": message.role, "parts": list(message.parts)} for message in content.prompt or ()
        ],
        Attr.GEN_AI_OUTPUT_MESSAGES: [output],
    }


def as_attributes(found: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Return messages as span attributes: JSON text."""
    return {key: json.dumps(value, ensure_ascii=False) for key, value in found.items()}
