"""OpenAI's chat completions API: requests to `Conversation`, `Answer` to replies and event streams.

Invariant: as in `gateway.anthropic`; the same conversation through both APIs is the same `Conversation` (but
for ids and parameters).

Thinking travels as `reasoning_content`, in both directions.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from internalize.gateway.body import Body, compact, sse
from internalize.gateway.conversation import (
    Answer,
    Call,
    Conversation,
    Item,
    Replied,
    RequestError,
    Result,
    Said,
    Tool,
)

_NOT_PARAMETERS = frozenset(("messages", "tools", "model", "stream", "stream_options", "user", "metadata"))


class TextPart(Body):
    """Text; no other part is understood."""

    type: Literal["text"]
    text: str


class FunctionCall(Body):
    """Name and arguments (a JSON text) of a call."""

    name: str
    arguments: str = ""


class ToolCallPart(Body):
    """A tool call of the model, handed back."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Body):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallPart] | None = None
    tool_call_id: str | None = None


class FunctionDefinition(Body):
    """A tool's name and schema; a tool without parameters may have no `parameters`."""

    name: str = Field(min_length=1, max_length=200)
    description: str = ""
    parameters: dict[str, Any] | None = None


class ToolDefinition(Body):
    """A tool on offer."""

    type: Literal["function"]
    function: FunctionDefinition


class ChatRequest(Body):
    """POST /v1/chat/completions. Sampling belongs to the session, as in `gateway.anthropic`."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ToolDefinition] = Field(default_factory=list)
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    top_p: float | None = Field(None, ge=0.0, le=1.0)
    n: Literal[1] | None = None


def conversation(request: ChatRequest) -> Conversation:
    """What the request says. Raises RequestError for a message without what its role needs."""
    items: list[Item] = []
    system: list[str] = []
    for message in request.messages:
        made = _items(message)
        if not items and message.role in ("system", "developer"):
            system += [item.text for item in made if isinstance(item, Said)]
        else:
            items += made
    given = request.model_dump(exclude_none=True, exclude_unset=True)
    functions = [tool.function for tool in request.tools]
    return Conversation(
        items=tuple(items),
        system=tuple(text for text in system if text),
        tools=tuple(Tool(f.name, f.description, f.parameters or {}) for f in functions),
        model=request.model,
        parameters={key: value for key, value in given.items() if key not in _NOT_PARAMETERS},
    )


def _items(message: ChatMessage) -> list[Item]:
    content = message.content
    texts = [] if content is None else [content] if isinstance(content, str) else [p.text for p in content]
    if message.role == "assistant":
        calls = tuple(_call(part) for part in message.tool_calls or ())
        return [Replied(message.reasoning_content or "", "\n".join(texts), calls)]
    if message.role == "tool":
        if message.tool_call_id is None:
            raise RequestError("a tool message names no tool_call_id")
        return [Result(message.tool_call_id, "\n".join(texts))]
    if content is None:
        raise RequestError(f"a {message.role} message has no content")
    role: Literal["user", "system"] = "user" if message.role == "user" else "system"
    return [Said(role, text) for text in texts]


def _call(part: ToolCallPart) -> Call:
    try:
        arguments = json.loads(part.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return Call(part.id, part.function.name, arguments if isinstance(arguments, dict) else None)


# ---- replies ---
def completion(answer: Answer, model: str, created: int) -> dict[str, Any]:
    """The reply as one JSON object."""
    reply = answer.reply
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "reasoning_content": reply.think}
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return {**_base(answer, model, created, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def stream(answer: Answer, model: str, created: int, with_usage: bool) -> bytes:
    """The reply as the chunks of a stream."""
    base, reply = _base(answer, model, created, "chat.completion.chunk"), answer.reply
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.think:
        deltas.append({"reasoning_content": reply.think})
    if reply.text:
        deltas.append({"content": reply.text})
    if reply.calls:
        deltas.append({"tool_calls": [{"index": i, **call} for i, call in enumerate(_calls(reply))]})
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": _finish(reply)})
    out = [sse(None, {**base, "choices": [choice]}) for choice in choices]
    if with_usage:
        out.append(sse(None, {**base, "choices": [], "usage": _usage(answer)}))
    return b"".join([*out, sse(None, "[DONE]")])


def error(status: int, text: str) -> dict[str, Any]:
    """An error's body."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": None}}


def _base(answer: Answer, model: str, created: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": created, "model": model}


def _calls(reply: Replied) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": compact(call.arguments or {})},
        }
        for call in reply.calls
    ]


def _finish(reply: Replied) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.prompt_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }
