"""Shortest plans of ring-and-dip games, found backwards.

Invariant: the plan is a shortest one. The last stroke of a plan shows whole on the target, so plans are peeled from
their end: a region of one colour (cells that do not matter, or that a later stroke covers, aside) is taken off, until
what is left is the canvas as it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Step = tuple[Literal["move", "paint", "stroke"], int | str]
"""A step to a station's number, to a paint, or a stroke's word."""

Node = tuple[frozenset[int], int, int]
"""Read backwards: the cells that are painted over from here on, and the station and paint at that time."""


@dataclass(frozen=True)
class Stroke:
    """A call that paints a region from one station."""

    word: str
    station: int
    region: frozenset[int]


def shortest(
    *,
    canvas: Sequence[int],
    target: Sequence[int],
    free: Iterable[int],
    ring: int,
    at: int,
    paint: int,
    paints: Sequence[int],
    strokes: Sequence[Stroke],
) -> list[Step]:
    """The fewest steps that make `canvas` equal to `target`, cells in `free` aside, ending with a stroke.

    Args:
        ring: stations of the ring; a move goes to a neighbour.
        at, paint: station and paint now.
        paints: paints on offer; changing to any of them is one step.

    Raises:
        ValueError: no strokes lead there.
    """
    settled = frozenset(free)
    done = frozenset(index for index, (a, b) in enumerate(zip(canvas, target, strict=True)) if a == b)
    whole = frozenset(range(len(target)))
    queue: list[tuple[int, int, Node]] = []
    came: dict[Node, tuple[Node | None, Step]] = {}
    best: dict[Node, int] = {}

    def put(node: Node, cost: int, then: Node | None, step: Step) -> None:
        if cost < best.get(node, 1 << 30):
            best[node] = cost
            came[node] = (then, step)
            heapq.heappush(queue, (cost, len(best), node))

    for stroke in strokes:
        colour = _colour(stroke.region, settled, target)
        if colour is not None:
            for used in [colour] if colour >= 0 else paints:
                if used in paints or used == paint:
                    put((settled | stroke.region, stroke.station, used), 1, None, ("stroke", stroke.word))
    while queue:
        cost, _, node = heapq.heappop(queue)
        if cost > best[node]:
            continue
        hidden, station, used = node
        if whole - hidden <= done and (station, used) == (at, paint):
            return _forwards(node, came)
        for neighbour in ((station - 1) % ring, (station + 1) % ring):
            put((hidden, neighbour, used), cost + 1, node, ("move", station))
        if used in paints:
            for other in {*paints, paint} - {used}:
                put((hidden, station, other), cost + 1, node, ("paint", used))
        for stroke in strokes:
            if stroke.station == station and not stroke.region <= hidden:
                colour = _colour(stroke.region, hidden, target)
                if colour == used:
                    put((hidden | stroke.region, station, used), cost + 1, node, ("stroke", stroke.word))
    raise ValueError("no strokes lead from this canvas to its target")


def _colour(region: frozenset[int], hidden: frozenset[int], target: Sequence[int]) -> int | None:
    """The one colour that shows in a region; -1 when none of it shows, None when there are several."""
    shown = {target[index] for index in region - hidden}
    return None if len(shown) > 1 else shown.pop() if shown else -1


def _forwards(node: Node, came: dict[Node, tuple[Node | None, Step]]) -> list[Step]:
    steps: list[Step] = []
    at: Node | None = node
    while at is not None:
        at, step = came[at]
        steps.append(step)
    return steps
