"""Frames as text that a language model reads.

Invariant: the text says the whole frame, HUD rows aside.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from itertools import groupby

from internalize.games.arc.engine import SIZE

Grid = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def grid(frame: bytes) -> Grid:
    """A frame as rows of colour numbers."""
    return tuple(tuple(frame[start : start + SIZE]) for start in range(0, SIZE * SIZE, SIZE))


def run_length(frame: bytes, hud_rows: Collection[int] = ()) -> str:
    """Row-merged run-length text: `0-8: 5x16 4x2 3x46`, equal neighbouring rows on one line; HUD rows left out."""
    rows = [(y, row) for y, row in enumerate(grid(frame)) if y not in hud_rows]
    lines = []
    for row, group in groupby(rows, key=lambda entry: entry[1]):
        numbers = [y for y, _ in group]
        where = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        runs = [(colour, len(list(cells))) for colour, cells in groupby(row)]
        lines.append(f"{where}: {' '.join(f'{colour}x{count}' for colour, count in runs)}")
    return "\n".join(lines)
