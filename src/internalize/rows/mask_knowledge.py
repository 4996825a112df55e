"""`mask_knowledge`: the rows of another set with the knowledge tokens taken out of the loss.

Invariant: tokens stay as they are; no token that is part of a fact, in either wording, true or false, has
weight.
"""

from __future__ import annotations

from typing import Any

from internalize.language.dialogue import Dialogue
from internalize.language.sayings import Sayings
from internalize.records import SftRow
from internalize.rows.context import RowContext


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """Parent rows with zero weight on facts; a row without any weight left is dropped and counted."""
    rows = []
    for row in context.parent:
        mask = fact_mask(row.tokens, context.template, context.knowledge.sayings)
        mask = [hidden or bool(mark) for hidden, mark in zip(mask, row.cite, strict=True)]  # put in: knowledge
        weights = [0.0 if hidden else weight for weight, hidden in zip(row.weights, mask, strict=True)]
        if not any(weights):
            context.dropped_episodes["nothing but knowledge"] += 1
            continue
        rows.append(row.model_copy(update={"weights": weights, "cite": [0] * len(row.tokens)}))
    return rows


def fact_mask(tokens: list[int], template: Dialogue, sayings: Sayings) -> list[bool]:
    """True at the tokens of every fact that is stated, in whichever wording."""
    spans = sayings.spans(template.decode(tokens))
    hidden = [False] * len(tokens)
    for index, (start, end) in enumerate(template.offsets(tokens) if spans else ()):
        hidden[index] = any(start < stop and first < end for _, first, stop in spans)
    return hidden
