"""Optimizer batches from stored rows.

Invariant: what a batch holds depends on the rows and the generator alone; the cite weight multiplies the
weight of cited tokens and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from internalize.errors import UserError
from internalize.files import read_json, read_jsonl
from internalize.records import SftRow
from internalize.train.batch import TrainSequence

ROWS, ONLINE = "rows.jsonl.gz", "online.json"


@dataclass(frozen=True)
class Rows:
    """A row set: stored rows, or (`online`) how the trainer makes them from the current policy."""

    rows: list[SftRow]
    online: dict[str, int] | None = None


def read_rows(folder: Path) -> Rows:
    """The row set in a payload of the rows stage."""
    rows = [SftRow.model_validate(row) for row in read_jsonl(folder / ROWS)]
    return Rows(rows, read_json(folder / ONLINE) if (folder / ONLINE).exists() else None)


def sequence_of(row: SftRow, cite_weight: float = 1.0) -> TrainSequence:
    """A row as the trainer takes it, with `cite_weight` on its cited tokens."""
    weights = [w * cite_weight if c else w for w, c in zip(row.weights, row.cite, strict=True)]
    return TrainSequence(tokens=row.tokens, ce_weights=weights, episode=row.provenance.episode or row.source)


def sft_batches(
    rows: Sequence[SftRow],
    optimizer_steps: int,
    batch_turns: int,
    rng: random.Random,
    cite_weight: float = 1.0,
) -> list[list[TrainSequence]]:
    """`optimizer_steps` batches; rows are drawn with replacement until a batch has at least `batch_turns`
    turns.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("no rows to train on", where="rows", expected="at least one row", fix="see build_report.json")
    batches = []
    for _ in range(optimizer_steps):
        batch: list[TrainSequence] = []
        turns = 0
        while turns < batch_turns:
            row = rows[rng.randrange(len(rows))]
            batch.append(sequence_of(row, cite_weight))
            turns += max(1, row.provenance.turns)
        batches.append(batch)
    return batches
