"""The board of the test game."""

from __future__ import annotations

from internalize.games.arc.ringdip import Box, Layout, RingDip, Station, blocks, halves, triangles

ROWS = {"N": (0, 1), "NE": (0, 2), "E": (1, 2), "SE": (2, 2), "S": (2, 1), "SW": (2, 0), "W": (1, 0), "NW": (0, 0)}
OPPOSITE = {
    "N": "bottom",
    "NE": "lower-left",
    "E": "left",
    "SE": "upper-left",
    "S": "top",
    "SW": "upper-right",
    "W": "right",
    "NW": "lower-right",
}

LAYOUT = Layout(
    canvas=Box(34, 34, 4, 4),
    target=Box(4, 4, 4, 4),
    stations={
        name: Station((26 + 8 * column, 26 + 8 * row), (28 + 8 * column, 28 + 8 * row))
        for name, (row, column) in ROWS.items()
    },
    outline=2,
    strip=2,
    swatch=5,
    rim=4,
    clicks=(22, 28, 34),
    budget=19,
    regions={**halves(4, 4), **triangles(4), **blocks(4, depth=1, width=2)},
    strokes=OPPOSITE,
    taps={"N": (35, 21), "E": (47, 35), "S": (35, 47), "W": (21, 35)},
    small={"N": "top-block", "E": "right-block", "S": "bottom-block", "W": "left-block"},
    small_from=3,
    training_levels=(1, 2),
)


def board() -> RingDip:
    """The board of the test game."""
    return RingDip(LAYOUT)
