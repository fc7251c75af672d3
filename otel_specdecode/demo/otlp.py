"""OTLP JSON lines: one export request a line, as the collector's file exporter writes and its receiver reads them."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

_IDS = frozenset({"traceId", "spanId", "parentSpanId"})


def json_line(request: Message) -> str:
    """Return an export request as one line of OTLP JSON.

    That is protobuf's JSON, but with ids as hex digits instead of base64 and enum values as numbers.
    """
    content = MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(_with_hex_ids(content), ensure_ascii=False, separators=(",", ":"))


def _with_hex_ids(content: Any) -> Any:
    if isinstance(content, list):
        return [_with_hex_ids(part) for part in content]
    if not isinstance(content, dict):
        return content
    return {
        key: base64.b64decode(value).hex() if key in _IDS and isinstance(value, str) else _with_hex_ids(value)
        for key, value in content.items()
    }
