"""The tools that a game is played by, as every model is shown them.

Invariant: names, descriptions and schemas are written out here and nowhere else, so that what a model reads changes
with no release of any library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_NONE: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_ACT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "description": "Name of an action that the game offers."},
        "x": {"type": "integer", "description": "Column, from 0; only for actions with coordinates."},
        "y": {"type": "integer", "description": "Row, from 0; only for actions with coordinates."},
    },
    "required": ["action"],
    "additionalProperties": False,
}


class ToolSpec(NamedTuple):
    """One tool; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


TOOLS = (
    ToolSpec("look", "See the game. Costs one act.", _NONE),
    ToolSpec("act", "Take one action in the game.", _ACT),
    ToolSpec("status", "Whether the game is over, and the acts left.", _NONE),
)


def as_functions() -> list[dict[str, Any]]:
    """The tools in the shape that chat templates and the OpenAI API take."""
    return [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}}
        for t in TOOLS
    ]
