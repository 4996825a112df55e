from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.games.dipwheel import DipWheel
from internalize.games.dipwheel.layout import POT_CELLS, SIZE
from internalize.games.dipwheel.state import REGION_CELLS, DipState
from internalize.games.protocol import Action

DIP = {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"}
PAINT = {"a": 3, "b": 1, "c": 2}

cells = st.integers(0, 3)
canvases = st.tuples(cells, cells, cells, cells)


def states_with(sprung: st.SearchStrategy[int], least_left: int) -> st.SearchStrategy[DipState]:
    return st.integers(4, 12).flatmap(
        lambda budget: st.builds(
            DipState,
            level=st.integers(1, 6),
            budget=st.just(budget),
            acts=st.integers(0, budget - least_left),
            pot=st.integers(0, 2),
            canvas=canvases,
            target=canvases,
            sprung=sprung,
        )
    )


states = states_with(st.integers(-1, 5), 0)
live = states_with(st.just(-1), 1).filter(lambda state: not state.cleared)
coordinates = st.none() | st.integers(-3, 12)
names = st.sampled_from((*(f"DIP_{station}" for station in DIP), "CLICK", "LOOK", ""))
actions = st.builds(Action, names, coordinates, coordinates)


@settings(deadline=None)
@given(live, st.sampled_from(sorted(DIP)))
def test_a_dip_does_what_its_region_says(game: DipWheel, state: DipState, station: str) -> None:
    after = game.apply(state, Action(f"DIP_{station}"))
    region = DIP[station]
    paint = 0 if region == "wipe" else PAINT["abc"[state.pot]]
    expected = tuple(paint if i in REGION_CELLS[region] else cell for i, cell in enumerate(state.canvas))
    assert after.canvas == expected
    assert after.dead == (region == "trap")
    assert after.cleared == (expected == state.target)
    assert (after.pot, after.target, after.acts, after.budget) == (
        state.pot, state.target, state.acts + 1, state.budget
    )  # fmt: skip


@settings(deadline=None)
@given(live, st.integers(0, SIZE - 1), st.integers(0, SIZE - 1))
def test_a_click_loads_the_pot_under_it_or_nothing(game: DipWheel, state: DipState, x: int, y: int) -> None:
    after = game.apply(state, Action("CLICK", x, y))
    pot = POT_CELLS.index((x, y)) if (x, y) in POT_CELLS else state.pot
    assert after == state._replace(pot=pot, acts=state.acts + 1)


@settings(deadline=None)
@given(states, actions)
def test_apply_accepts_exactly_what_refuse_lets_through(game: DipWheel, state: DipState, action: Action) -> None:
    if game.refuse(state, action) is None:
        assert game.apply(state, action).acts == state.acts + 1
    else:
        with pytest.raises(ValueError, match="Action"):
            game.apply(state, action)


@settings(deadline=None)
@given(states)
def test_what_is_on_offer_is_not_refused(game: DipWheel, state: DipState) -> None:
    for name, needs_coordinates in game.actions(state):
        action = Action(name, 0, 0) if needs_coordinates else Action(name)
        assert game.refuse(state, action) is None
    assert bool(game.actions(state)) == (not state.done)
    for action in game.call_words().values():
        assert (game.refuse(state, action) is None) == (not state.done)


@settings(deadline=None)
@given(states)
def test_done_is_cleared_dead_or_out_of_acts(game: DipWheel, state: DipState) -> None:
    assert state.done == (state.cleared or state.dead or state.acts >= state.budget)
    assert state.cleared == (game.progress(state) == 1.0)
    if state.done:
        for ended in (game.idle, game.advice):
            if ended == game.idle or state.cleared:
                with pytest.raises(ValueError, match=r"over|needed"):
                    ended(state)
    else:
        assert game.idle(state) == state._replace(acts=state.acts + 1)


@settings(deadline=None)
@given(states)
def test_probes_restate_the_state(game: DipWheel, state: DipState) -> None:
    probes = game.probes(state)
    colours = ["blank", "red", "green", "blue"]
    assert probes["pot"] == "abc"[state.pot]
    assert [colours.index(name) for name in probes["canvas"]] == list(state.canvas)
    assert [colours.index(name) for name in probes["target"]] == list(state.target)
    assert (probes["cleared"], probes["dead"]) == (state.cleared, state.dead)
    assert probes["actions_left"] == state.budget - state.acts


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 10_000), st.lists(st.integers(0, 8), max_size=12))
def test_a_replay_gives_the_same_states(game: DipWheel, level: int, seed: int, moves: list[int]) -> None:
    words = list(game.call_words().values())

    def replay() -> list[DipState]:
        path = [game.start(level, seed)]
        for index in moves:
            if not path[-1].done:
                path.append(game.apply(path[-1], words[index]))
        return path

    first = replay()
    assert first == replay()
    assert len(set(first)) == len(first)  # hashable, and the acts alone tell them apart
