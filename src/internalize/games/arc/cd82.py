"""The screen of cd82 (`cd82-fb555c5d`), as anybody can measure it on its frames.

Invariant: places and shapes only; the game's file is the user's, and nothing of it is here.

These are figures (where a player sees what), read off frames; no text, picture, level or program of the game. They are
held against the user's own copy when it is fetched (`RingDip.misfits`): a copy that they do not fit is refused. A user
who would rather not take them measures a board of their own and names its module in `game.board`.
"""

from __future__ import annotations

from internalize.games.arc.ringdip import Box, Layout, RingDip, Station, blocks, diagonals, halves, triangles

SIDE = 10

LAYOUT = Layout(
    canvas=Box(27, 34, SIDE, SIDE),
    target=Box(3, 3, SIDE, SIDE),
    stations={
        "N": Station((25, 24), (26, 25)),
        "NE": Station((39, 21), (39, 26)),
        "E": Station((39, 32), (44, 34)),
        "SE": Station((43, 40), (42, 42)),
        "S": Station((25, 46), (26, 46)),
        "SW": Station((20, 40), (20, 42)),
        "W": Station((17, 32), (18, 33)),
        "NW": Station((24, 21), (24, 26)),
    },
    outline=2,
    strip=2,
    swatch=5,
    rim=4,
    clicks=(37, 43, 34, 40, 46, 23, 29, 35, 41, 47, 53, 59),
    budget=99,  # the hundredth act ends the game and does nothing else
    regions={**halves(SIDE, SIDE), **triangles(SIDE), **blocks(SIDE, depth=3, width=4)},
    strokes={
        "N": "top",
        "NE": "upper-right",
        "E": "right",
        "SE": "lower-right",
        "S": "bottom",
        "SW": "lower-left",
        "W": "left",
        "NW": "upper-left",
    },
    taps={"N": (32, 20), "E": (50, 39), "S": (32, 57), "W": (13, 39)},
    small={"N": "top-block", "E": "right-block", "S": "bottom-block", "W": "left-block"},
    small_from=7,
    free=diagonals(SIDE),
)


def board() -> RingDip:
    """The board of cd82."""
    return RingDip(LAYOUT)
