from __future__ import annotations

import pytest

from internalize.games.dipwheel.rules import REGIONS
from internalize.games.dipwheel.state import REGION_CELLS, DipState, colour_number, matched, paint


@pytest.mark.parametrize(
    ("region", "after"),
    [
        ("left", (9, 1, 9, 3)),
        ("right", (0, 9, 2, 9)),
        ("top", (9, 9, 2, 3)),
        ("bottom", (0, 1, 9, 9)),
        ("wipe", (0, 0, 0, 0)),
        ("trap", (0, 1, 2, 3)),
    ],
)
def test_paint_by_hand(region: str, after: tuple[int, ...]) -> None:
    assert paint((0, 1, 2, 3), region, 9) == after


def test_paint_covers_the_cells_of_the_region() -> None:
    for region in REGIONS:
        after = paint((1, 1, 1, 1), region, 2)
        changed = tuple(i for i in range(4) if after[i] != 1)
        assert changed == REGION_CELLS[region]


def test_matched_and_colour_numbers() -> None:
    assert matched((0, 1, 2, 3), (0, 1, 3, 3)) == 3
    assert [colour_number(colour) for colour in ("red", "green", "blue")] == [1, 2, 3]


def test_done_follows_from_the_fields() -> None:
    state = DipState(1, 4, 0, 0, (0, 0, 0, 0), (1, 0, 1, 0))
    assert not state.done
    assert state._replace(acts=4).done
    assert state._replace(sprung=0).dead
    assert state._replace(sprung=0).done
    assert state._replace(canvas=state.target).cleared
    assert state._replace(canvas=state.target).done
