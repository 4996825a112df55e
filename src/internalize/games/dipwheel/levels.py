"""Levels: where a canvas starts and what it should become.

Invariant: a start is a function of (level, seed, rules), and of the rules only through the opening pot of
level 1, which holds the colour that is needed. Every level can be cleared with at least three acts of its
budget to spare.
"""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import product

from internalize.errors import UserError
from internalize.games.dipwheel.planner import DIPS, Dip, dip_plan, dipped
from internalize.games.dipwheel.rules import POTS, Rules
from internalize.games.dipwheel.state import BLANK, Canvas, DipState

#: Acts a player has, by level.
BUDGETS = {1: 4, 2: 5, 3: 7, 4: 8, 5: 10, 6: 12}

LEVELS = tuple(BUDGETS)

#: Levels of the study's training; 5 and 6 are headroom.
TRAINING_LEVELS = (1, 2, 3, 4)

_OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}
_WET = tuple(dip for dip in DIPS if dip[1] is not None)


def start(level: int, seed: int, rules: Rules) -> DipState:
    """First state of a level; UserError for an unknown level.

    1: one dip, the right pot in hand. 2: one dip, any pot. 3: two disjoint dips. 4: two overlapping dips in
    two colours. 5: a target that takes three dips or more. 6: a smeared canvas that takes a wipe and two dips
    or more.
    """
    if level not in BUDGETS:
        raise UserError("unknown level", got=repr(level), expected=" ".join(map(str, LEVELS)))
    rng = random.Random(f"dipwheel/{level}/{seed}")
    canvas = BLANK
    if level <= 4:
        dips = _dips(rng, level)
        target = BLANK
        for dip in dips:
            target = dipped(target, dip)
        pot = rules.paints.index(str(dips[0][1])) if level == 1 else rng.randrange(len(POTS))
    else:
        canvas, target = rng.choice(_long_tasks(smeared=level == 6))
        pot = rng.randrange(len(POTS))
    return DipState(level, BUDGETS[level], 0, pot, canvas, target)


def _dips(rng: random.Random, level: int) -> list[Dip]:
    first = rng.choice(_WET)
    if level <= 2:
        return [first]
    while True:
        region, colour = rng.choice(_WET)
        if level == 3:
            return [first, (_OPPOSITE[first[0]], colour)]
        if region not in (first[0], _OPPOSITE[first[0]]) and colour != first[1]:
            return [first, (region, colour)]


@lru_cache(maxsize=2)
def _long_tasks(smeared: bool) -> tuple[tuple[Canvas, Canvas], ...]:
    """All (canvas, target) of level 5 (blank canvas) or 6 (one dip on it, a wipe in every shortest plan), in
    order."""
    canvases = [dipped(BLANK, dip) for dip in _WET] if smeared else [BLANK]
    targets: list[Canvas] = [(a, b, c, d) for a, b, c, d in product(range(4), repeat=4)]
    tasks = []
    for canvas, target in product(canvases, targets):
        plan = dip_plan(canvas, target)
        if plan is not None and len(plan) >= 3 and (not smeared or ("wipe", None) in plan):
            tasks.append((canvas, target))
    return tuple(tasks)
