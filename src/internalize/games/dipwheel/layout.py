"""The 8x8 screen of Dipwheel.

Invariant: the frame shows exactly what the observation says (pot in hand, target, canvas), a closed trap, and
in its HUD row the budget; so outside the HUD two frames are equal exactly if nothing but the number of acts
has changed.

    y0  budget bar (HUD)
    y1  t t . . N N . .      t target, c canvas
    y2  t t . W . . E .      W, E: the stations NW and NE
    y3  . . . . c c . .
    y4  . . . . c c . .
    y5  . . . W . . E .      SW and SE
    y6  a b c . S S . .      pots
    y7  m m m . . . . .      a mark under the pot in hand
"""

from __future__ import annotations

from internalize.games.dipwheel.rules import POTS, STATIONS
from internalize.games.dipwheel.state import DipState
from internalize.games.protocol import Frame

SIZE = 8
HUD_ROWS = frozenset({0})

#: Colour numbers: 0 .. 3 are the cell values of a canvas (blank, red, green, blue).
BACKGROUND, STATION, POT, MARK, LEFT, SPENT, SPRUNG = 4, 5, 6, 7, 8, 9, 10

TARGET_CELLS = ((0, 1), (1, 1), (0, 2), (1, 2))
CANVAS_CELLS = ((4, 3), (5, 3), (4, 4), (5, 4))
POT_CELLS = ((0, 6), (1, 6), (2, 6))
STATION_CELLS = (((4, 1), (5, 1)), ((6, 2),), ((6, 5),), ((4, 6), (5, 6)), ((3, 5),), ((3, 2),))

_MARK_ROW = 7


def frame(state: DipState) -> Frame:
    """Rows of colour numbers, 8 x 8."""
    rows = [[BACKGROUND] * SIZE for _ in range(SIZE)]
    lit = -(-SIZE * (state.budget - state.acts) // state.budget)
    rows[0] = [LEFT] * lit + [SPENT] * (SIZE - lit)
    shown = (*zip(TARGET_CELLS, state.target, strict=True), *zip(CANVAS_CELLS, state.canvas, strict=True))
    for (x, y), value in shown:
        rows[y][x] = value
    for station, spots in enumerate(STATION_CELLS):
        for x, y in spots:
            rows[y][x] = SPRUNG if station == state.sprung else STATION
    for x, y in POT_CELLS:
        rows[y][x] = POT
    rows[_MARK_ROW][POT_CELLS[state.pot][0]] = MARK
    return tuple(map(tuple, rows))


def labels() -> dict[tuple[int, int], str]:
    """Captions for pictures, by frame cell."""
    stations = {cells[0]: name for name, cells in zip(STATIONS, STATION_CELLS, strict=True)}
    names = {(0, 0): "acts", (0, 3): "target", (6, 3): "canvas"}
    return {**names, **stations, **dict(zip(POT_CELLS, POTS, strict=True))}
