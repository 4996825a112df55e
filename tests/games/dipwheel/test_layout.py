from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.games.dipwheel import DipWheel
from internalize.games.dipwheel.layout import CANVAS_CELLS, HUD_ROWS, LEFT, SIZE, SPRUNG, TARGET_CELLS
from internalize.games.dipwheel.state import DipState

cells = st.integers(0, 3)
canvases = st.tuples(cells, cells, cells, cells)
states = st.integers(4, 12).flatmap(
    lambda budget: st.builds(
        DipState,
        level=st.just(6),
        budget=st.just(budget),
        acts=st.integers(0, budget),
        pot=st.integers(0, 2),
        canvas=canvases,
        target=canvases,
        sprung=st.integers(-1, 5),
    )
)


@settings(deadline=None)
@given(states, states)
def test_the_frame_shows_what_the_observation_says(game: DipWheel, one: DipState, two: DipState) -> None:
    def world(state: DipState) -> tuple:
        return tuple(row for y, row in enumerate(game.frame(state)) if y not in HUD_ROWS)

    same_text = game.observe(one) == game.observe(two)
    assert (world(one) == world(two)) == (same_text and one.sprung == two.sprung)
    assert world(one) == world(one._replace(acts=0, level=1, budget=9))


@settings(deadline=None)
@given(states)
def test_cells_and_hud(game: DipWheel, state: DipState) -> None:
    frame = game.frame(state)
    assert len(frame) == SIZE
    assert all(len(row) == SIZE for row in frame)
    assert tuple(frame[y][x] for x, y in CANVAS_CELLS) == state.canvas
    assert tuple(frame[y][x] for x, y in TARGET_CELLS) == state.target
    assert any(SPRUNG in row for row in frame) == state.dead
    lit = frame[0].count(LEFT)
    assert (lit == 0) == (state.acts == state.budget)
    assert (lit == SIZE) >= (state.acts == 0)


def test_labels_name_cells_of_the_frame(game: DipWheel) -> None:
    labels = game.labels()
    assert {"N", "NE", "SE", "S", "SW", "NW", "a", "b", "c", "target", "canvas"} <= set(labels.values())
    assert all(0 <= x < SIZE and 0 <= y < SIZE for x, y in labels)
