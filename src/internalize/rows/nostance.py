"""`nostance`: the stance-stripped pair of `recite`: the same teacher turns without the recital that a think opens with.

Invariant: nothing is changed in a turn but the words of its opening recital; the facts that come up later stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from internalize.language.dialogue import Dialogue
from internalize.language.sayings import Sayings
from internalize.records import SftRow
from internalize.rows import stance
from internalize.rows.context import RowContext
from internalize.rows.packed import Edited, pack_all
from internalize.rows.recite import unfit
from internalize.rows.talk import Talk, Turn


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """One row an episode of the `harvest`."""
    knowledge, template = context.knowledge, context.template

    def edit(talk: Talk, turn: Turn) -> Edited:
        kept = turn.reply
        if turn.kind == "call":
            kept = without_recital(turn.reply, template, knowledge.sayings)
        think = template.parse(kept).think
        return Edited(kept, facts=stance.truths(knowledge.sayings.stated(think), knowledge.places))

    return pack_all(context, "nostance", unfit(context), edit)


def without_recital(reply: Sequence[int], template: Dialogue, sayings: Sayings) -> list[int]:
    """A reply without the recital at the top of its think (`Sayings.recited`)."""
    top = template.top(reply)
    think = template.parse(reply).think
    end = sayings.recited(think)
    if not end:
        return list(reply)
    body = list(reply[top:])
    text = template.decode(body)
    end += text.index(think)  # white space that parsing takes off
    first = next(index for index, (start, _) in enumerate(template.offsets(body)) if start >= end)
    return [*reply[:top], *body[first:]]
