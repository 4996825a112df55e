from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import UserError
from internalize.games.dipwheel import DipWheel
from internalize.games.protocol import Game
from internalize.knowledge.bench import Bench, Spot
from internalize.knowledge.dsl import Experiment, satisfied
from internalize.seeds import rng

ANY = {
    "expect": [{"op": "eq", "probe": "dead", "value": False}],
    "null": [{"op": "otherwise"}],
    "do": ["dip:N"],
}
PRES: list[list[dict[str, Any]]] = [
    [{"op": "eq", "probe": "pot", "value": "c"}],
    [{"op": "ne", "probe": "canvas", "value": ["blank"] * 4}, {"op": "eq", "probe": "pot", "value": "a"}],
    [{"op": "count", "probe": "canvas", "besides": ["blank"], "value": 3}],
    [{"op": "same", "probe": "canvas", "other": "target"}],
    [{"op": "eq", "probe": "acts", "value": 3}],
]


def replayed(game: Game, spot: Spot) -> Any:
    """The state after the spot's acts, none of which the game may refuse."""
    state = game.start(spot.level, spot.seed)
    for word in spot.actions:
        action = game.call_words()[word]
        assert game.refuse(state, action) is None
        state = game.apply(state, action)
    return state


@given(st.integers(1, 6), st.integers(0, 40), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_context_is_reproduced_by_its_acts_and_never_over(game: DipWheel, level: int, index: int, seed: int) -> None:
    test = Experiment.model_validate({**ANY, "random_actions": [0, 3]})
    spot = Bench(game, seed).context(test, level, index)
    assert spot is not None
    assert spot == Bench(game, seed).context(test, level, index)
    assert spot.state == replayed(game, spot)
    assert len(spot.actions) <= 3
    assert not spot.state.done


@given(
    st.sampled_from(PRES),
    st.integers(1, 6),
    st.integers(0, 20),
    st.sampled_from(["nearest", "around", "goal"]),
)
@settings(max_examples=40, deadline=None)
def test_reach_finds_states_in_the_precondition_by_legal_acts(
    game: DipWheel, pre: list[dict[str, Any]], level: int, index: int, aim: Any
) -> None:
    ending = pre[0]["op"] == "same"
    test = Experiment.model_validate({**ANY, "pre": pre, "max_walk": 4, "do": [] if ending else ["dip:N"]})
    bench = Bench(game)
    context = bench.context(test, level, index)
    assert context is not None
    found = list(bench.reach(context, test, rng("test", index), aim))
    for spot in found[:10]:
        assert satisfied(test.pre, spot.probes)
        assert spot.state == replayed(game, spot)
        assert len(spot.actions) - len(context.actions) <= test.max_walk
        assert spot.actions[: len(context.actions)] == context.actions
    if pre == PRES[0] and context.state.budget - context.state.acts > 1:
        assert found
        assert len(found[0].actions) - len(context.actions) <= 1 or aim == "goal"


def test_starts_are_tried_until_one_fits(game: DipWheel) -> None:
    red_left = ["red", "blank", "red", "blank"]
    test = Experiment.model_validate(
        {**ANY, "start": [{"op": "eq", "probe": "target", "value": red_left}], "random_actions": [0, 0]}
    )
    spots = [Bench(game).context(test, 2, index) for index in range(5)]
    assert all(spot is not None and spot.probes["target"] == red_left for spot in spots)
    assert len({spot.seed for spot in spots if spot}) == 5
    impossible = Experiment.model_validate({**ANY, "start": [{"op": "eq", "probe": "target", "value": ["red"] * 4}]})
    assert Bench(game).context(impossible, 2, 0) is None


def test_a_call_that_the_game_lacks_is_a_user_error(game: DipWheel) -> None:
    bench = Bench(game)
    with pytest.raises(UserError) as error:
        bench.step(bench.start(1, 0), "dip:UP")
    assert error.value.got == "dip:UP"


def test_a_refused_act_ends_a_walk(game: DipWheel) -> None:
    bench = Bench(game)
    assert bench.walk(bench.start(1, 0), ["dip:NE"]) is not None
    assert bench.walk(bench.start(1, 0), ["dip:NE", "dip:N"]) is None
    assert bench.walk(None, ["dip:N"]) is None
