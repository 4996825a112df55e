"""`nostance`: the stance-stripped pair of `recite`: the same teacher turns without the recital before
`need`.

Invariant: nothing is changed in a turn but the words before its `need`; the facts that the need calls for
stay.
"""

from __future__ import annotations

from typing import Any

from internalize.records import SftRow
from internalize.rows import stance
from internalize.rows.context import RowContext
from internalize.rows.packed import Edited, pack_all
from internalize.rows.recite import unfit
from internalize.rows.talk import Talk, Turn


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """One row an episode of the `harvest`."""
    places = context.knowledge.places

    def edit(talk: Talk, turn: Turn) -> Edited:
        cut = stance.before_need(turn.think) if turn.kind == "call" else 0
        kept = " ".join(turn.think.split()[cut:])
        return Edited([], turn.reply[cut:], stance.truths(kept, places))

    return pack_all(context, "nostance", unfit(context), edit)
