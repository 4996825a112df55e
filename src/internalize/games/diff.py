"""What changed between two frames.

Invariant: `cells_changed == 0` exactly if the frames agree outside the HUD rows; `cells_changed` equals the
length of `changed_cells` plus `changed_omitted`, and the sum of `change_kinds`.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from internalize.games.protocol import Frame


class Diff(NamedTuple):
    """`changed_cells` rows are [x, y, before, after], row-major, at most the cap; `change_kinds` is by
    "before->after"."""

    cells_changed: int
    change_kinds: dict[str, int]
    changed_cells: list[list[int]]
    changed_omitted: int


def diff(before: Frame, after: Frame, hud_rows: Set[int], max_cells: int) -> Diff:
    """Difference of two frames of equal shape; HUD rows count for nothing, kinds cover the omitted cells
    too."""
    cells: list[list[int]] = []
    kinds: dict[str, int] = {}
    changed = 0
    for y, (old_row, new_row) in enumerate(zip(before, after, strict=True)):
        if old_row == new_row or y in hud_rows:
            continue
        for x, (old, new) in enumerate(zip(old_row, new_row, strict=True)):
            if old == new:
                continue
            changed += 1
            kind = f"{old}->{new}"
            kinds[kind] = kinds.get(kind, 0) + 1
            if len(cells) < max_cells:
                cells.append([x, y, old, new])
    return Diff(changed, kinds, cells, changed - len(cells))
