"""Shortest plans, by breadth-first search over canvases.

Invariant: `need` depends on canvas and target only, never on the rules, and breaks ties in one fixed order;
it is what a player can see. `shortest` knows the rules and counts acts, pot changes included.
"""

from __future__ import annotations

from functools import lru_cache

from internalize.games.dipwheel.rules import COLOURS, Rules
from internalize.games.dipwheel.state import HALVES, Canvas, colour_number, paint

#: A dip as a player thinks of it: a region and the colour it takes; None is the dry `wipe`.
Dip = tuple[str, str | None]

#: Tie order: halves before the wipe, regions in the order of `REGIONS`, colours in that of `COLOURS`.
DIPS: tuple[Dip, ...] = (*((region, colour) for region in HALVES for colour in COLOURS), ("wipe", None))


def dipped(canvas: Canvas, dip: Dip) -> Canvas:
    """The canvas after a dip."""
    region, colour = dip
    return paint(canvas, region, 0 if colour is None else colour_number(colour))


@lru_cache(maxsize=1 << 16)
def dip_plan(canvas: Canvas, target: Canvas) -> tuple[Dip, ...] | None:
    """First shortest list of dips from `canvas` to `target` in tie order; None if no dips lead there."""
    if canvas == target:
        return ()
    edge: list[tuple[Canvas, tuple[Dip, ...]]] = [(canvas, ())]
    seen = {canvas}
    while edge:
        further: list[tuple[Canvas, tuple[Dip, ...]]] = []
        for at, path in edge:
            for dip in DIPS:
                after = dipped(at, dip)
                if after == target:
                    return (*path, dip)
                if after not in seen:
                    seen.add(after)
                    further.append((after, (*path, dip)))
        edge = further
    return None


def need(canvas: Canvas, target: Canvas) -> Dip:
    """First dip of `dip_plan`; ValueError if the canvas is the target already or no dips lead there."""
    path = dip_plan(canvas, target)
    if not path:
        raise ValueError(f"no dip is needed or none helps from {canvas} to {target}")
    return path[0]


def shortest(rules: Rules, pot: int, canvas: Canvas, target: Canvas) -> list[tuple[str, int]]:
    """Fewest acts to the target under `rules`: ("pot", pot index) and ("dip", station index), pot changes
    counted.

    ValueError if the target can't be reached.
    """
    moves = [("pot", index) for index in range(len(rules.paints))]
    moves += [("dip", index) for index, region in enumerate(rules.regions) if region != "trap"]
    paints = [colour_number(colour) for colour in rules.paints]
    start = (pot, canvas)
    came: dict[tuple[int, Canvas], tuple[tuple[int, Canvas], tuple[str, int]] | None] = {start: None}
    queue = [start]
    for at in queue:
        if at[1] == target:
            path: list[tuple[str, int]] = []
            while (step := came[at]) is not None:
                at = step[0]
                path.append(step[1])
            return path[::-1]
        for kind, index in moves:
            after = (index, at[1]) if kind == "pot" else (at[0], paint(at[1], rules.regions[index], paints[at[0]]))
            if after not in came:
                came[after] = (at, (kind, index))
                queue.append(after)
    raise ValueError(f"no acts lead from {canvas} to {target}")
