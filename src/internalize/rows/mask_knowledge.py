"""`mask_knowledge`: the rows of another set with the knowledge tokens taken out of the loss.

Invariant: tokens stay as they are; no token that is part of a fact, in either wording, true or false, has
weight.
"""

from __future__ import annotations

from typing import Any

from internalize.language.vocabulary import Vocabulary
from internalize.records import SftRow
from internalize.rows.context import RowContext


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """Parent rows with zero weight on facts; a row without any weight left is dropped and counted."""
    rows = []
    for row in context.parent:
        mask = fact_mask(row.tokens, context.template.vocab)
        weights = [0.0 if hidden else weight for weight, hidden in zip(row.weights, mask, strict=True)]
        if not any(weights):
            context.dropped_episodes["nothing but knowledge"] += 1
            continue
        cite = [0 if hidden else mark for mark, hidden in zip(row.cite, mask, strict=True)]
        rows.append(row.model_copy(update={"weights": weights, "cite": cite}))
    return rows


def fact_mask(tokens: list[int], vocab: Vocabulary) -> list[bool]:
    """True at fact tokens (`left@N`) and at each word of a fact in the other wording (`left at N`)."""
    words = [vocab.tokens[token] for token in tokens]
    facts = {word for word in vocab.tokens if "@" in word.strip("@")}
    mask = [word in facts for word in words]
    for i, (subject, at, place) in enumerate(zip(words, words[1:], words[2:], strict=False)):
        if at == "at" and f"{subject}@{place}" in facts:
            mask[i : i + 3] = [True] * 3
    return mask
