"""What a request says, whichever API it came through.

Invariant: the same conversation gives the same `Conversation` through both APIs, whether a content is a string
or a list of parts; cache marks and signatures are not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from internalize.errors import UserError


class RequestError(UserError):
    """A request that makes no sense; `status` is its HTTP status."""

    title = "bad request"

    def __init__(self, what: str, status: int = 400) -> None:
        super().__init__(what)
        self.status = status


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool on offer."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One piece of text that the model did not write."""

    role: Literal["system", "user"]
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `arguments` is None when they are not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Replied:
    """One reply of the model, as the client holds it."""

    think: str = ""
    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's answer."""

    call_id: str
    text: str


Item = Said | Replied | Result


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole request."""

    items: tuple[Item, ...]
    system: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    model: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """The other settings of the request. Sampling is the session's: these only tell clients apart."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client: a call, or a text that ends the episode."""

    id: str
    reply: Replied
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
