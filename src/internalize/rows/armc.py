"""`armc` (arm C): the base's own turns with verified facts inserted at the top of each think.

Invariant: the `cite` mask covers exactly the inserted facts; taking them out gives the base's own reply.
"""

from __future__ import annotations

from typing import Any

from internalize.language.sayings import subject_of
from internalize.records import SftRow
from internalize.rows import stance
from internalize.rows.context import RowContext
from internalize.rows.packed import Edited, pack_all
from internalize.rows.talk import Talk, Turn
from internalize.seeds import rng


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """`facts_per_think` facts a think. `pick` random: any; relevant: those that the think's own need calls
    for, and random ones where these are fewer.

    `history` recorded: one row a call, as the record has one sample a call; the thinks before it are the base's own.
    edited: one row an episode, in which every think before carries its facts too.
    """
    count, relevant = int(settings["facts_per_think"]), settings["pick"] == "relevant"
    facts = context.knowledge.trained_facts
    about = {subject_of(fact): fact for fact in facts}
    template, say = context.template, context.knowledge.sayings.say

    def edit(talk: Talk, turn: Turn) -> Edited:
        if turn.kind != "call":
            return Edited(turn.reply)
        draw = rng("armc", talk.episode, turn.index)
        needed = (stance.need(turn.think) or ()) if relevant else ()
        chosen = [about[subject] for subject in needed if subject in about][:count]
        rest = [fact for fact in facts if fact not in chosen]
        chosen += draw.sample(rest, min(count - len(chosen), len(rest)))
        top = template.top(turn.reply)
        return Edited(turn.reply[top:], template.recital([say(fact) for fact in chosen]), chosen, turn.reply[:top])

    return pack_all(
        context, "armc", lambda turn: None, edit, per_turn=settings.get("history", "recorded") == "recorded"
    )
