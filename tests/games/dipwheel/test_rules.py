from __future__ import annotations

import random
from itertools import permutations

import pytest

from internalize.errors import UserError
from internalize.games.dipwheel import DipWheel, Rules, random_rules
from internalize.games.dipwheel.rules import COLOURS, REGIONS, fact_words


def test_facts_state_the_rules_completely(game: DipWheel) -> None:
    assert game.rules.facts() == (
        *("left@N", "trap@NE", "top@SE", "wipe@S", "right@SW", "bottom@NW"),
        *("blue@a", "red@b", "green@c"),
    )
    every = [Rules(r, c) for r in permutations(REGIONS) for c in permutations(COLOURS)]
    assert len({frozenset(rules.facts()) for rules in every}) == len(every) == 4320
    assert {fact for rules in every[::7] for fact in rules.facts()} == set(fact_words())


def test_random_rules_shun_the_excluded_stations_and_reach_the_others() -> None:
    rng = random.Random(2)
    excluded = random_rules(rng).regions
    drawn = [random_rules(rng, exclude_regions=excluded) for _ in range(6000)]
    assert excluded not in {rules.regions for rules in drawn}
    assert len({rules.regions for rules in drawn}) == 719
    assert {rules.paints for rules in drawn} == set(permutations(COLOURS))
    # without the exclusion the same stream does draw them
    assert excluded in {random_rules(rng).regions for _ in range(6000)}


def test_rules_are_permutations(game: DipWheel) -> None:
    with pytest.raises(UserError, match="exactly once") as caught:
        Rules(("left",) * 6, COLOURS)
    assert "rules.stations" in caught.value.where
    with pytest.raises(UserError, match="exactly once"):
        Rules(REGIONS, ("red", "green"))
    assert hash(game.rules) == hash(Rules(game.rules.regions, game.rules.paints))
