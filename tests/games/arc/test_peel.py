"""Plans peeled from the end are as short as plans found by trying everything from the start."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.games.arc.peel import Stroke, shortest

RING = 4
STROKES = [
    Stroke("a", 0, frozenset({0, 1})),
    Stroke("b", 1, frozenset({1, 3})),
    Stroke("c", 2, frozenset({2, 3})),
    Stroke("d", 3, frozenset({0, 2})),
    Stroke("e", 0, frozenset({1})),
]
cell = st.integers(0, 2)
canvas = st.tuples(cell, cell, cell, cell)


def forwards(start: tuple[int, ...], target: tuple[int, ...], free: frozenset[int], paint: int) -> int | None:
    """Fewest steps by breadth-first search over everything that can be done."""

    def fits(cells: tuple[int, ...]) -> bool:
        return all(a == b for index, (a, b) in enumerate(zip(cells, target, strict=True)) if index not in free)

    queue = deque([((start, 0, paint, False), 0)])
    seen = {queue[0][0]}
    while queue:
        (cells, at, used, stroked), cost = queue.popleft()
        if stroked and fits(cells):
            return cost
        after = [(cells, (at + way) % RING, used, False) for way in (-1, 1)]
        after += [(cells, at, other, False) for other in (1, 2) if other != used]
        for stroke in STROKES:
            if stroke.station == at:
                painted = tuple(used if i in stroke.region else c for i, c in enumerate(cells))
                after.append((painted, at, used, True))
        for state in after:
            if state not in seen:
                seen.add(state)
                queue.append((state, cost + 1))
    return None


@settings(max_examples=60, deadline=None)
@given(start=canvas, target=canvas, free=st.sets(st.integers(0, 3), max_size=1), paint=st.sampled_from([1, 2]))
def test_plans_are_shortest(start: tuple[int, ...], target: tuple[int, ...], free: set[int], paint: int) -> None:
    asked = {"canvas": start, "target": target, "free": free, "ring": RING, "at": 0, "paint": paint, "paints": [1, 2]}
    expected = forwards(start, target, frozenset(free), paint)
    if expected is None:
        with pytest.raises(ValueError, match="no strokes lead"):
            shortest(**asked, strokes=STROKES)  # type: ignore[arg-type]
    else:
        assert len(shortest(**asked, strokes=STROKES)) == expected  # type: ignore[arg-type]
