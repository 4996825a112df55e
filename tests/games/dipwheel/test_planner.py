from __future__ import annotations

import random
from itertools import product

import pytest

from internalize.games.dipwheel import DipWheel, random_rules
from internalize.games.dipwheel.planner import DIPS, dip_plan, dipped, need, shortest
from internalize.games.dipwheel.state import BLANK, Canvas

CANVASES: list[Canvas] = [(a, b, c, d) for a, b, c, d in product(range(4), repeat=4)]


def distances(start: Canvas) -> dict[Canvas, int]:
    """Plain layer-by-layer distances in dips, written without the planner's search."""
    found, edge = {start: 0}, {start}
    while edge:
        edge = {dipped(canvas, dip) for canvas in edge for dip in DIPS} - set(found)
        found |= dict.fromkeys(edge, max(found.values()) + 1)
    return found


def test_dip_plans_are_shortest_and_lead_to_the_target() -> None:
    rng = random.Random(3)
    for start in [BLANK, *rng.sample(CANVASES, 6)]:
        reach = distances(start)
        for target in CANVASES:
            plan = dip_plan(start, target)
            if target not in reach:
                assert plan is None
                continue
            assert plan is not None
            assert len(plan) == reach[target]
            at = start
            for dip in plan:
                at = dipped(at, dip)
            assert at == target


def test_ties_break_in_the_order_of_the_dips() -> None:
    for target in CANVASES:
        plan = dip_plan(BLANK, target)
        if not plan:
            continue
        rests = {dip: dip_plan(dipped(BLANK, dip), target) for dip in DIPS}
        good = [dip for dip, rest in rests.items() if rest is not None and len(rest) == len(plan) - 1]
        assert need(BLANK, target) == good[0]


def test_need_refuses_what_needs_no_dip_or_has_none() -> None:
    unreachable = next(target for target in CANVASES if dip_plan(BLANK, target) is None)
    for canvas, target in ((BLANK, BLANK), (BLANK, unreachable)):
        with pytest.raises(ValueError, match="no dip"):
            need(canvas, target)
    with pytest.raises(ValueError, match="no acts"):
        shortest(random_rules(random.Random(0)), 0, BLANK, unreachable)


def test_shortest_counts_pot_changes_and_shuns_the_trap() -> None:
    """Against iterative deepening over all act sequences of up to three acts."""
    rng = random.Random(8)
    for _ in range(12):
        rules = random_rules(rng)
        game = DipWheel(rules)
        start = game.start(rng.choice((1, 2, 3)), rng.randrange(99))._replace(pot=rng.randrange(3))
        words = list(game.call_words().values())
        states, depth = {start}, 0
        while not any(state.cleared for state in states) and depth < 3:
            states = {game.apply(state, action) for state in states if not state.done for action in words}
            depth += 1
        plan = game.plan(start)
        if any(state.cleared for state in states):
            assert len(plan) == depth
        else:
            assert len(plan) > 3
