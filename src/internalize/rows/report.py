"""What a row set is made of, in numbers.

Invariant: everything is counted from the rows themselves, so the figures describe the file that they lie
beside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from internalize.records import SftRow
from internalize.rows.context import RowContext


def build_report(rows: Sequence[SftRow], context: RowContext, settings: dict[str, Any]) -> dict[str, Any]:
    """Source, what went in, what came out and what was left out, by reason."""
    return {
        "source": settings,
        "episodes_in": len(context.episodes),
        "parent_rows_in": len(context.parent),
        "rows": len(rows),
        "turns": sum(row.provenance.turns for row in rows),
        "episodes_used": len({row.provenance.episode for row in rows if row.provenance.episode is not None}),
        "left_out": dict(sorted(context.dropped_episodes.items())),
        "turns_not_trained": dict(sorted(context.dropped_turns.items())),
    }


def coverage(rows: Sequence[SftRow], context: RowContext) -> dict[str, Any]:
    """How often each verified fact occurs, in either wording, is trained and is cited; which atoms the rows
    name."""
    template, sayings = context.template, context.knowledge.sayings
    read: Counter[str] = Counter()
    trained: Counter[str] = Counter()
    cited: Counter[str] = Counter()
    atoms: Counter[str] = Counter()
    for row in rows:
        atoms.update(row.provenance.atoms)
        spans = sayings.spans(template.decode(row.tokens))
        offsets = template.offsets(row.tokens) if spans else []
        for fact, _, end in spans:
            last = next(
                index for index, (_, stop) in enumerate(offsets) if stop >= end
            )  # it is learnt at its last word
            read[fact] += 1
            trained[fact] += row.weights[last] > 0
            cited[fact] += row.cite[last]
    facts = {
        fact: {"read": read[fact], "trained": trained[fact], "cited": cited[fact]}
        for fact in context.knowledge.prompt_facts
    }
    return {
        "facts": facts,
        "held_out": sorted(context.knowledge.held_out_facts),
        "facts_trained": sum(trained[fact] > 0 for fact in facts),
        "atoms": dict(sorted(atoms.items())),
    }


def token_stats(rows: Sequence[SftRow]) -> dict[str, Any]:
    """Sizes in tokens."""
    lengths = sorted(len(row.tokens) for row in rows)
    return {
        "rows": len(rows),
        "tokens": sum(lengths),
        "trained_tokens": sum(sum(w > 0 for w in row.weights) for row in rows),
        "cited_tokens": sum(sum(row.cite) for row in rows),
        "weight": sum(sum(row.weights) for row in rows),
        "length": {
            "min": lengths[0] if lengths else 0,
            "median": lengths[len(lengths) // 2] if lengths else 0,
            "max": lengths[-1] if lengths else 0,
        },
    }
