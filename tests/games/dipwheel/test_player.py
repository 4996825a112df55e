from __future__ import annotations

import random

import pytest

from internalize.games.dipwheel import DipWheel, decide, random_rules
from internalize.games.dipwheel.planner import need
from internalize.games.dipwheel.rules import REGIONS


@pytest.mark.parametrize(
    ("pot", "canvas", "target", "think", "call"),
    [
        (0, (0, 0, 0, 0), (1, 0, 1, 0), "need left red left@N red@b", "pot:b"),
        (1, (0, 0, 0, 0), (1, 0, 1, 0), "need left red left@N red@b", "dip:N"),
        (2, (3, 3, 0, 0), (0, 0, 2, 2), "need wipe dry wipe@S", "dip:S"),
        (2, (3, 3, 0, 0), (3, 3, 2, 2), "need bottom green bottom@NW green@c", "dip:NW"),
    ],
)
def test_think_and_call_by_hand(
    game: DipWheel, pot: int, canvas: tuple[int, ...], target: tuple[int, ...], think: str, call: str
) -> None:
    state = game.start(6, 0)._replace(pot=pot, canvas=canvas, target=target)
    assert decide(state, game.rules) == (think, call)
    advice = game.advice(state)
    assert advice.call == call
    words = think.split()
    assert [w for w in words if "@" in w] == list(advice.facts)
    assert [w for w in words[1:3] if w != "dry"] == list(advice.need)


def test_rules_enter_only_through_the_facts(game: DipWheel) -> None:
    rng = random.Random(5)
    for seed in range(80):
        state = game.start(1 + seed % 6, seed)
        believed = random_rules(rng)
        think, call = decide(state, believed)
        _, region, colour, *facts = think.split()
        assert (region, None if colour == "dry" else colour) == need(state.canvas, state.target)
        assert set(facts) <= set(believed.facts())
        places = {fact.split("@")[0]: fact.split("@")[1] for fact in facts}
        in_hand = colour == "dry" or places[colour] == "abc"[state.pot]
        assert call == (f"dip:{places[region]}" if in_hand else f"pot:{places[colour]}")
        assert region in REGIONS
