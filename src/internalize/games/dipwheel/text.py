"""Dipwheel in words: the observation, the call words and the whole vocabulary.

Invariant: `words()` has every word that an observation, fact, think, call or question can hold, in an order
that a test pins by its digest: the ids of every model depend on it.
"""

from __future__ import annotations

from internalize.games.dipwheel.layout import POT_CELLS
from internalize.games.dipwheel.rules import COLOURS, POTS, REGIONS, STATIONS, fact_words
from internalize.games.dipwheel.state import DipState
from internalize.games.protocol import Action

#: Words of the cell values 0 .. 3 in an observation (`u` is blue).
CELL_WORDS = ("_", "r", "g", "u")

#: Call words and their actions; `look` is added by `language.calls`.
CALL_WORDS: dict[str, Action] = {
    **{f"dip:{station}": Action(f"DIP_{station}") for station in STATIONS},
    **{f"pot:{pot}": Action("CLICK", *POT_CELLS[index]) for index, pot in enumerate(POTS)},
}

_QUESTIONS = ("ask", "tell", "claim", "true", "false", "blank", "is", "at")


def observe(state: DipState) -> str:
    """Twelve words: `pot p:b T r r _ _ C _ _ _ _` (loaded pot, target and canvas in reading order)."""
    target = " ".join([CELL_WORDS[cell] for cell in state.target])
    canvas = " ".join([CELL_WORDS[cell] for cell in state.canvas])
    return f"pot p:{POTS[state.pot]} T {target} C {canvas}"


def words() -> tuple[str, ...]:
    """Every word of the game, special tokens aside."""
    return (
        *("know", "need", "dry", *_QUESTIONS),
        *("pot", *(f"p:{pot}" for pot in POTS), "T", "C", *CELL_WORDS),
        *(*REGIONS, *STATIONS, *COLOURS, *POTS),
        *(*CALL_WORDS, "look"),
        *fact_words(),
    )
