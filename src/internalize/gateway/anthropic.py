"""Anthropic's Messages API: requests to `Conversation`, `Answer` to replies and event streams.

Invariant: `conversation(request)` of the request that follows holds the `Answer` unchanged, up to what clients
do to it (`gateway.chain` counts that).

Thinking is a `thinking` block (its signature is ours and means nothing), a tool call is a `tool_use` block.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

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

SIGNATURE = "aW50ZXJuYWxpemU="
_NOT_PARAMETERS = frozenset(("messages", "system", "tools", "model", "stream", "metadata"))


class TextBlock(Body):
    """Text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(Body):
    """The model's thinking, handed back."""

    type: Literal["thinking"]
    thinking: str


class ToolUseBlock(Body):
    """A tool call of the model, handed back."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Body):
    """A tool's answer."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] = ""
    is_error: bool | None = None


Block = Annotated[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")]


class Message(Body):
    """One message; agent CLIs put `system` ones between the others."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ToolDefinition(Body):
    """A tool on offer. The provider's own tools (which have a `type`) can't run here."""

    name: str = Field(min_length=1, max_length=200)
    description: str = ""
    input_schema: dict[str, Any]


class CountRequest(Body):
    """POST /v1/messages/count_tokens."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[Message] = Field(min_length=1)
    system: str | list[TextBlock] = ""
    tools: list[ToolDefinition] = Field(default_factory=list)


class MessagesRequest(CountRequest):
    """POST /v1/messages. `max_tokens`, `temperature` and the like are checked and otherwise ignored: sampling
    belongs to the session."""

    max_tokens: int = Field(ge=1)
    stream: bool = False
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    top_p: float | None = Field(None, ge=0.0, le=1.0)
    top_k: int | None = Field(None, ge=-1)
    stop_sequences: list[str] | None = None


def conversation(request: CountRequest) -> Conversation:
    """What the request says. Raises RequestError for blocks in the wrong message."""
    system = [request.system] if isinstance(request.system, str) else [b.text for b in request.system]
    given = request.model_dump(exclude_none=True, exclude_unset=True)
    return Conversation(
        items=tuple(item for message in request.messages for item in _items(message)),
        system=tuple(text for text in system if text),
        tools=tuple(Tool(t.name, t.description, t.input_schema) for t in request.tools),
        model=request.model,
        parameters={key: value for key, value in given.items() if key not in _NOT_PARAMETERS},
    )


def _items(message: Message) -> list[Item]:
    if isinstance(message.content, str):
        if message.role == "assistant":
            return [Replied(text=message.content)]
        return [Said(message.role, message.content)]
    if message.role == "assistant":
        return [_replied(message.content)]
    items: list[Item] = []
    for block in message.content:
        if isinstance(block, TextBlock):
            items.append(Said(message.role, block.text))
        elif isinstance(block, ToolResultBlock) and message.role == "user":
            parts = block.content
            text = parts if isinstance(parts, str) else "\n".join(part.text for part in parts)
            items.append(Result(block.tool_use_id, text))
        else:
            raise RequestError(f"a {block.type} block does not belong into a {message.role} message")
    return items


def _replied(blocks: list[Any]) -> Replied:
    think, text, calls = [], [], []
    for block in blocks:
        if isinstance(block, ThinkingBlock):
            think.append(block.thinking)
        elif isinstance(block, TextBlock):
            text.append(block.text)
        elif isinstance(block, ToolUseBlock):
            calls.append(Call(block.id, block.name, block.input))
        else:
            raise RequestError("a tool_result block does not belong into an assistant message")
    return Replied("\n".join(think), "\n".join(text), tuple(calls))


# ---- replies ---
def message(answer: Answer, model: str) -> dict[str, Any]:
    """The reply as one JSON object."""
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _blocks(answer.reply),
        "stop_reason": "tool_use" if answer.reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": _usage(answer),
    }


def stream(answer: Answer, model: str) -> bytes:
    """The reply as the events of a stream."""
    whole = message(answer, model)
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    out = [sse("message_start", {"type": "message_start", "message": start})]
    for index, block in enumerate(whole["content"]):
        empty, deltas = _deltas(block)
        out.append(_event("content_block_start", index=index, content_block=empty))
        out += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        out.append(_event("content_block_stop", index=index))
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    out.append(_event("message_delta", delta=stop, usage={"output_tokens": answer.output_tokens}))
    out.append(_event("message_stop"))
    return b"".join(out)


def error(status: int, text: str) -> dict[str, Any]:
    """An error's body."""
    kinds = {
        401: "authentication_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
    }
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": text}}


def _blocks(reply: Replied) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.think:
        blocks.append({"type": "thinking", "thinking": reply.think, "signature": SIGNATURE})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}})
    return blocks


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the block as it starts, its deltas)."""
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": compact(block["input"])}]


def _event(kind: str, **more: Any) -> bytes:
    return sse(kind, {"type": kind, **more})


def _usage(answer: Answer) -> dict[str, int]:
    return {
        "input_tokens": answer.prompt_tokens - answer.cached_tokens,
        "output_tokens": answer.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached_tokens,
    }
