"""The colours of frame cells."""

from __future__ import annotations

#: Colours of the cell numbers 0 .. 15: canvas blank, red, green, blue; background, station, pot, mark, budget
#: left and spent, closed trap; the rest is for games with more of them.
PALETTE = (
    *("#ffffff", "#d1383d", "#3f9b4f", "#2f6fc1", "#e9e6df", "#7d7668", "#5b5346", "#f0a202"),
    *("#4a4a4a", "#cfcbc2", "#101010", "#7b4fa3", "#2aa198", "#e377c2", "#a0522d", "#bcbd22"),
)
