"""Which rows of which HF tensors make up a Megatron tensor: the name table as copy instructions.

Invariant: for every entry, copying its runs gives exactly ``hf_names.fuse``, and copying them backwards exactly
``hf_names.split``. Rows are slices along the first dimension (elements of a vector), so a conversion moves blocks of
rows and never holds a tensor as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from internalize.checkpoints.hf_names import Entry


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows that lie together on both sides.

    Attributes:
        part: position of the HF tensor in ``Entry.hf``.
        row: first row there.
        at: first row in the Megatron tensor (of one layer).
        rows: how many.
    """

    part: int
    row: int
    at: int
    rows: int


def runs(entry: Entry, config: Mapping[str, Any]) -> Iterator[Run]:
    """The runs of an entry, in the order of the Megatron tensor's rows."""
    heights = [shape[0] for shape in entry.shapes]
    groups = config["num_key_value_heads"] if entry.kind == "qkv" else 1
    at = 0
    for group in range(groups):
        for part, height in enumerate(heights):
            rows = height // groups
            yield Run(part, group * rows, at, rows)
            at += rows


def row_numbers(shape: tuple[int, ...]) -> int:
    """Numbers in one row of a tensor of this shape."""
    count = 1
    for size in shape[1:]:
        count *= size
    return count


def blocks(run: Run, row_bytes: int, limit: int) -> Iterator[Run]:
    """The run in pieces of at most ``limit`` bytes, at least one row each."""
    step = max(1, limit // max(1, row_bytes))
    for start in range(0, run.rows, step):
        yield Run(run.part, run.row + start, run.at + start, min(step, run.rows - start))
