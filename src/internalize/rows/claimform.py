"""`claimform`: claims to be judged true or false.

Invariant: true and false claims are equally many, so that answering always the same is worth nothing; a
false claim is one that the trials refuted.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from internalize.records import SftRow
from internalize.rows.chat import distinct, question_row
from internalize.rows.context import RowContext
from internalize.seeds import rng


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """For each atom and wording its true claim and one of its refuted mutations, drawn by the atom's
    id; no settings."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for form in context.knowledge.forms("claimform"):
        groups[form["atom"], form["wording"]].append(form)
    rows: list[SftRow] = []
    for (atom, wording), forms in groups.items():
        asked = [(question_row(context, "claimform", form), form["label"]) for form in forms]
        made = distinct(context, (row for row, _ in asked))
        labels = {tuple(row.tokens): label for row, label in asked}
        sides: dict[bool, list[SftRow]] = {True: [], False: []}
        for row in made:
            sides[labels[tuple(row.tokens)]].append(row)
        if not sides[True] or not sides[False]:
            context.dropped_episodes["claim without its counterpart"] += len(made)
            continue
        rows += [sides[True][0], rng("claimform", atom, wording).choice(sides[False])]
        context.dropped_episodes["surplus false claim"] += len(made) - 2
    return distinct(context, rows)
