"""Dipwheel: a 2x2 canvas on a wheel of six stations and three pots, whose labels say nothing about what they
do.

Invariant: `apply` is pure and accepts exactly what `refuse` lets through; an accepted act always costs one of
the budget and does nothing else unless it changes pot, canvas or trap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from internalize.errors import UserError
from internalize.games.dipwheel import layout, player, text
from internalize.games.dipwheel.levels import LEVELS, TRAINING_LEVELS, start
from internalize.games.dipwheel.planner import shortest
from internalize.games.dipwheel.rules import COLOURS, POTS, STATIONS, Rules
from internalize.games.dipwheel.state import DipState, colour_number, matched, paint
from internalize.games.protocol import Action, ActionSpec, Advice, Frame

_CLICK = "CLICK"
_DIPS = {f"DIP_{station}": index for index, station in enumerate(STATIONS)}
_SPECS = (*(ActionSpec(name, False) for name in _DIPS), ActionSpec(_CLICK, True))
_POT_AT = {cell: index for index, cell in enumerate(layout.POT_CELLS)}
_CELL_NAMES = ("blank", *COLOURS)


class DipWheel:
    """The game under one rule set. See `games.protocol.Game` for the methods."""

    name = "dipwheel"
    levels = LEVELS
    training_levels = TRAINING_LEVELS
    hud_rows = layout.HUD_ROWS

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._paints = tuple(map(colour_number, rules.paints))

    def words(self) -> tuple[str, ...]:
        return text.words()

    def start(self, level: int, seed: int) -> DipState:
        return start(level, seed, self.rules)

    def refuse(self, state: DipState, action: Action) -> str | None:
        name, x, y = action
        if state.done:
            return "the episode is over"
        if name in _DIPS:
            return None if x is None and y is None else f"{name} takes no coordinates"
        if name != _CLICK:
            return f"unknown action {name!r}, expected one of {' '.join((*_DIPS, _CLICK))}"
        if x is None or y is None:
            return f"{_CLICK} needs x and y"
        if not (0 <= x < layout.SIZE and 0 <= y < layout.SIZE):
            return f"{_CLICK} at {x},{y} is outside the frame, x and y go from 0 to {layout.SIZE - 1}"
        return None

    def apply(self, state: DipState, action: Action) -> DipState:
        level, budget, acts, pot, canvas, target, sprung = state
        station = _DIPS.get(action.action)
        reason = self.refuse(state, action)
        if reason is not None:
            raise ValueError(f"{reason}: {action}")
        if station is None:
            pot = _POT_AT.get((action.x, action.y), pot)  # type: ignore[arg-type]
        elif self.rules.regions[station] == "trap":
            sprung = station
        else:
            canvas = paint(canvas, self.rules.regions[station], self._paints[pot])
        return DipState(level, budget, acts + 1, pot, canvas, target, sprung)

    def idle(self, state: DipState) -> DipState:
        if state.done:
            raise ValueError("the episode is over")
        return state._replace(acts=state.acts + 1)

    def observe(self, state: DipState) -> str:
        return text.observe(state)

    def frame(self, state: DipState) -> Frame:
        return layout.frame(state)

    def labels(self) -> Mapping[tuple[int, int], str]:
        return layout.labels()

    def actions(self, state: DipState) -> list[ActionSpec]:
        return [] if state.done else list(_SPECS)

    def call_words(self) -> Mapping[str, Action]:
        return text.CALL_WORDS

    def progress(self, state: DipState) -> float:
        return matched(state.canvas, state.target) / len(state.target)

    def probes(self, state: DipState) -> dict[str, Any]:
        """`pot` a b c; `canvas`, `target` four of blank red green blue; `cleared`, `dead`; `actions_left`."""
        return {
            "pot": POTS[state.pot],
            "canvas": [_CELL_NAMES[cell] for cell in state.canvas],
            "target": [_CELL_NAMES[cell] for cell in state.target],
            "cleared": state.cleared,
            "dead": state.dead,
            "actions_left": state.budget - state.acts,
        }

    def plan(self, state: DipState) -> list[Action]:
        path = shortest(self.rules, state.pot, state.canvas, state.target)
        return [
            Action(f"DIP_{STATIONS[i]}") if kind == "dip" else Action(_CLICK, *layout.POT_CELLS[i]) for kind, i in path
        ]

    def advice(self, state: DipState) -> Advice:
        return player.advise(state, self.rules)

    def legend(self) -> str:
        dips = ", ".join(word.action for word in self.call_words().values() if word.x is None)
        pots = ", ".join(
            f"{w.removeprefix('pot:')} at {a.x},{a.y}" for w, a in self.call_words().items() if a.x is not None
        )
        return (
            "The screen is a line of words: `pot p:a` is the pot in hand; behind T stand the four cells of the target, "
            "behind C those of the canvas, upper left, upper right, lower left, lower right: r red, g green, u blue, _ "
            "blank. The level is cleared when the canvas equals the target. Acts are limited. "
            f"Actions of `act`: {dips}, which dip at a station, and CLICK with x and y, which takes a pot in hand: "
            f"{pots}."
        )

    def place(self, state: DipState, word: str) -> str | None:
        return word.rpartition(":")[2]


def from_settings(rules: Any = None, **unknown: Any) -> DipWheel:
    """The game of the study file's `game` section: `rules: {stations: {N: left, ..}, pots: {a: blue, ..}}` or
    a `Rules`."""
    if unknown:
        raise UserError("unknown game setting", where="game", got=" ".join(sorted(unknown)), expected="rules")
    if isinstance(rules, Rules):
        return DipWheel(rules)
    if not isinstance(rules, Mapping) or set(rules) != {"stations", "pots"}:
        raise UserError("dipwheel needs its rules", where="game.rules", expected="stations and pots", got=repr(rules))
    return DipWheel(Rules.of(rules["stations"], rules["pots"]))
