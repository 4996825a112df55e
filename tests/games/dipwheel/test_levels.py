from __future__ import annotations

import random

import pytest

from internalize.errors import UserError
from internalize.files import digest
from internalize.games.dipwheel import DipWheel, Rules, decide, random_rules
from internalize.games.dipwheel.levels import BUDGETS, LEVELS, TRAINING_LEVELS
from internalize.games.dipwheel.planner import dip_plan
from internalize.games.dipwheel.state import BLANK, matched

SEEDS = range(300)
#: Fewest acts to a clear, by level: (least, most) over `SEEDS` under the study's rules.
OPTIMUM = {1: (1, 1), 2: (1, 2), 3: (2, 4), 4: (3, 4), 5: (4, 6), 6: (3, 5)}


def test_levels_are_pinned(game: DipWheel) -> None:
    """Equal on every machine and Python: a recorded episode must replay for ever."""
    starts = [list(game.start(level, seed)) for level in LEVELS for seed in SEEDS]
    assert digest(starts) == "d7d8ee56b12f879498ced5351137c36649f509f443b87eb6800216f871de63b2"


def test_a_start_depends_on_the_rules_only_by_level_1s_pot(game: DipWheel) -> None:
    other = DipWheel(Rules(game.rules.regions[::-1], game.rules.paints[::-1]))
    for level in LEVELS:
        pairs = [(game.start(level, seed), other.start(level, seed)) for seed in range(60)]
        assert all(a._replace(pot=0) == b._replace(pot=0) for a, b in pairs)
        assert all(a.pot == b.pot for a, b in pairs) == (level != 1)


def test_level_shapes(game: DipWheel) -> None:
    for seed in SEEDS:
        for level in LEVELS:
            state = game.start(level, seed)
            plan = dip_plan(state.canvas, state.target)
            assert plan is not None
            colours = {colour for _, colour in plan}
            assert (state.budget, state.acts, state.done) == (BUDGETS[level], 0, False)
            assert (state.canvas == BLANK) == (level != 6)
            assert {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}[level] == len(plan)
            if level == 3:
                assert matched(state.target, BLANK) == 0
            if level == 4:
                assert len(colours) == 2
                assert matched(state.target, BLANK) == 1
            assert (("wipe", None) in plan) == (level == 6)


def test_level_1_opens_with_the_right_pot() -> None:
    rng = random.Random(1)
    for seed in range(60):
        game = DipWheel(random_rules(rng))
        state = game.start(1, seed)
        assert len(game.plan(state)) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_planner_and_knowing_player_clear_every_level(game: DipWheel, level: int) -> None:
    fewest = []
    for seed in SEEDS:
        state = game.start(level, seed)
        plan = game.plan(state)
        fewest.append(len(plan))
        for action in plan:
            assert not state.done
            state = game.apply(state, action)
        assert state.cleared
        state = game.start(level, seed)
        while not state.done:
            state = game.apply(state, game.call_words()[decide(state, game.rules)[1]])
        assert state.cleared
        assert len(plan) <= state.acts <= BUDGETS[level] - 3
    assert (min(fewest), max(fewest)) == OPTIMUM[level]


def test_mean_optimum_is_that_of_the_note(game: DipWheel) -> None:
    means = [sum(len(game.plan(game.start(level, seed))) for seed in SEEDS) / len(SEEDS) for level in TRAINING_LEVELS]
    assert means == pytest.approx([1.0, 1.7, 3.2, 3.65], abs=0.1)


@pytest.mark.parametrize("level", [0, 7, -1])
def test_unknown_level_is_a_user_error(game: DipWheel, level: int) -> None:
    with pytest.raises(UserError, match="unknown level") as caught:
        game.start(level, 0)
    assert "1 2 3 4 5 6" in caught.value.expected
