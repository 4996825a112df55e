"""`declarative`: one question a fact, answered from the knowledge set; no play in it.

Invariant: only facts that may be trained are asked for, in one wording, with one ending.
"""

from __future__ import annotations

from typing import Any

from internalize.language.calls import LOOK
from internalize.records import SftRow
from internalize.rows.chat import distinct, question_row
from internalize.rows.context import RowContext


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """`ending` text: `ask left` -> `<say> left@N`; tool_call: the fact is the think and a `look` follows.

    `wording` think: `left@N`; other: `left at N`, three words that thinks never use.
    """
    call = LOOK if settings["ending"] == "tool_call" else None
    forms = [form for form in context.knowledge.forms("declarative", settings["wording"]) if form["fact"]]
    return distinct(context, (question_row(context, "declarative", form, call=call) for form in forms))
