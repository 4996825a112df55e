"""A Dipwheel state and what a dip does to a canvas.

Invariant: `cleared`, `dead` and `done` are derived, so no state contradicts itself; whoever builds one with
`_replace` needs to set nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from internalize.games.dipwheel.rules import COLOURS, REGIONS

#: The 2x2 canvas in reading order: top left, top right, bottom left, bottom right. 0 is blank, 1 .. 3 are
#: `COLOURS`.
Canvas = tuple[int, int, int, int]

BLANK: Canvas = (0, 0, 0, 0)

#: Cells that a region covers. A wet dip fills them with the paint; `wipe` blanks the canvas; `trap` ends the
#: episode.
REGION_CELLS: dict[str, tuple[int, ...]] = {
    "left": (0, 2),
    "right": (1, 3),
    "top": (0, 1),
    "bottom": (2, 3),
    "wipe": (0, 1, 2, 3),
    "trap": (),
}

#: Regions that take paint.
HALVES = tuple(region for region in REGIONS if len(REGION_CELLS[region]) == 2)


class DipState(NamedTuple):
    """`pot` indexes `POTS`; `sprung` is the index of the station whose trap closed, -1 while none has."""

    level: int
    budget: int
    acts: int
    pot: int
    canvas: Canvas
    target: Canvas
    sprung: int = -1

    @property
    def cleared(self) -> bool:
        """The canvas equals the target."""
        return self.canvas == self.target

    @property
    def dead(self) -> bool:
        """A trap has closed."""
        return self.sprung >= 0

    @property
    def done(self) -> bool:
        """Cleared, dead or out of acts."""
        return self.canvas == self.target or self.sprung >= 0 or self.acts >= self.budget


def paint(canvas: Canvas, region: str, colour: int) -> Canvas:
    """The canvas after a dip into `region` with paint `colour` (1 .. 3; ignored by `wipe` and `trap`)."""
    if region == "wipe":
        return BLANK
    a, b, c, d = canvas
    if region == "left":
        return colour, b, colour, d
    if region == "right":
        return a, colour, c, colour
    if region == "top":
        return colour, colour, c, d
    if region == "bottom":
        return a, b, colour, colour
    return canvas


def matched(canvas: Canvas, target: Canvas) -> int:
    """Number of equal cells, 0 .. 4."""
    return sum(map(int.__eq__, canvas, target))


def colour_number(colour: str) -> int:
    """Cell value of a colour name: 1 red, 2 green, 3 blue."""
    return COLOURS.index(colour) + 1
