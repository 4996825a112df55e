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
    chosen: list[dict[str, Any]] = []
    for (atom, wording), forms in groups.items():
        true = [form for form in forms if form["label"]]
        false = [form for form in forms if not form["label"]]
        if not true or not false:
            context.dropped_episodes["claim without its counterpart"] += len(forms)
            continue
        chosen += [true[0], rng("claimform", atom, wording).choice(false)]
        context.dropped_episodes["surplus false claim"] += len(forms) - 2
    return distinct(context, (question_row(context, "claimform", form) for form in chosen))
