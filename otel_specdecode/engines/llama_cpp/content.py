"""Prompt and answer of llama-cpp-python's calls as messages, for users who opted in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.observer import Content, Message, MessagePart, text_part


def keep_prompt(content: Content, llama: Any, prompt: Any) -> None:
    """Keep the prompt of a completion: text, or tokens that are turned into it."""
    try:
        text = prompt if isinstance(prompt, str) else llama.detokenize(list(prompt)).decode("utf-8", "replace")
        content.prompt = (Message("user", (text_part(text),)),)
    except Exception as error:
        report_fault("a prompt could not be read for content capture", error)


def keep_messages(content: Content, messages: Iterable[Mapping[str, Any]]) -> None:
    """Keep the messages of a chat, unless they are an iterator's: what is read of it the engine would lack."""
    if isinstance(messages, Iterator):
        return
    try:
        content.prompt = tuple(Message(str(each.get("role")), _parts(each)) for each in messages)
    except Exception as error:
        report_fault("the messages of a chat could not be read for content capture", error)


def keep_answer(content: Content, answer: Any) -> None:
    """Keep what a chunk or a whole answer says."""
    try:
        for choice in answer["choices"]:
            said = choice.get("message") or choice.get("delta") or {}
            text = choice.get("text") or said.get("content")
            if isinstance(text, str):
                content.completion.append(text)
            for call in said.get("tool_calls") or ():
                _keep_tool_call(content, call)
    except Exception as error:
        report_fault("an answer could not be read for content capture", error)


def _parts(message: Mapping[str, Any]) -> tuple[MessagePart, ...]:
    said = message.get("content")
    texts = [said] if isinstance(said, str) else [part.get("text") for part in said or () if part.get("type") == "text"]
    parts: list[MessagePart] = [text_part(text) for text in texts if isinstance(text, str)]
    if message.get("role") == "tool":
        answer = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": "".join(map(str, texts))}
        return (answer,)
    parts += [_tool_call(call) for call in message.get("tool_calls") or ()]
    return tuple(parts)


def _tool_call(call: Mapping[str, Any]) -> dict[str, object]:
    function = call.get("function") or {}
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments") or "",
    }


def _keep_tool_call(content: Content, call: Mapping[str, Any]) -> None:
    """Keep a tool call; the pieces of a streamed one have the id of its first."""
    new = _tool_call(call)
    last: Any = content.tool_calls[-1] if content.tool_calls else None
    if last is not None and call.get("index") is not None and new["id"] in (None, last["id"]):
        last["arguments"] = f"{last['arguments']}{new['arguments']}"
    else:
        content.tool_calls.append(new)
