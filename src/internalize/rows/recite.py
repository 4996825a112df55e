"""`recite` (IDD): turns of a teacher who had the knowledge in the prompt, with the knowledge taken out of
the prompt.

Invariant: a trained turn states no fact that the knowledge set refutes, and its call is the one that its
own facts lead to; other turns stay in the history untrained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from internalize.records import SftRow
from internalize.rows import stance
from internalize.rows.context import RowContext
from internalize.rows.packed import Edited, pack_all
from internalize.rows.talk import Talk, Turn


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """One row an episode of the `harvest`."""
    knowledge = context.knowledge

    def edit(talk: Talk, turn: Turn) -> Edited:
        return Edited(turn.reply, facts=stance.truths(knowledge.sayings.stated(turn.think), knowledge.places))

    return pack_all(context, "recite", unfit(context), edit)


def unfit(context: RowContext) -> Callable[[Turn], str | None]:
    """Why a teacher's turn should not be learnt from:
    it states something false or acts against what it states."""
    knowledge = context.knowledge

    def refuse(turn: Turn) -> str | None:
        if stance.falsehoods(knowledge.sayings.stated(turn.think), knowledge.places):
            return "states a refuted fact"
        implied = stance.implied_call(turn.think, turn.text)
        return "acts against its own facts" if implied is not None and implied != turn.call else None

    return refuse
