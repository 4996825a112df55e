"""A game of the ARC-AGI-3 toolkit as a pure game.

Invariant: a state is (level, seed, the accepted actions) and what they showed; the engine that stands behind it is a
cache and can be thrown away at any time, because it is deterministic. An episode is one level.

The engine has no undo, so a state that is left twice is played again from the start of its level, once, and copied from
then on. Acts that change nothing on the engine's side (a look, an unusable reply) cost budget here and are not passed
to it, so our budget always ends first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from internalize.errors import UserError
from internalize.games.arc.board import Board
from internalize.games.arc.engine import COMPLEX, SIZE, Play, Shown, takes_seed
from internalize.games.arc.text import grid, run_length
from internalize.games.protocol import Action, ActionSpec, Advice, Frame

Move = tuple[int, int, int]
"""Action number and coordinates (-1, -1 where it takes none)."""

ENGINES = 48
"""Engines that are kept, at about 1 MB each."""
SHOWN = 150_000
"""States whose outcome is remembered; equal frames are kept once."""


class ArcState(NamedTuple):
    """`moves` are the actions that the engine was given; `acts` counts them and all other spent acts."""

    level: int
    seed: int
    budget: int
    acts: int
    moves: tuple[Move, ...]
    frame: bytes
    frames: int
    cleared: bool
    dead: bool

    @property
    def done(self) -> bool:
        """Cleared, dead or out of acts."""
        return self.cleared or self.dead or self.acts >= self.budget


class ArcGame:
    """See `games.protocol.Game` for the methods."""

    def __init__(self, made: type, board: Board, game_id: str) -> None:
        self.board = board
        self.id = game_id
        self.name = board.name
        self.hud_rows = board.hud_rows
        self._made = made
        self._seeded = takes_seed(made)
        self._engines: OrderedDict[tuple[int, int, tuple[Move, ...]], Play] = OrderedDict()
        self._left: set[tuple[int, int, tuple[Move, ...]]] = set()
        self._shown: OrderedDict[tuple[int, int, tuple[Move, ...]], Shown] = OrderedDict()
        self._frames: dict[bytes, bytes] = {}

    @cached_property
    def _first(self) -> Play:
        return Play.begin(self._made, 1, 0)[0]

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """All levels, from 1."""
        return tuple(range(1, self._first.levels + 1))

    @property
    def training_levels(self) -> tuple[int, ...]:
        """Levels that are trained on."""
        return tuple(level for level in self.board.training_levels if level in self.levels)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {f"ACTION{number}": number for number in self._first.numbers}

    def words(self) -> tuple[str, ...]:
        """None: the model that plays reads text, not a closed vocabulary."""
        return ()

    def start(self, level: int, seed: int) -> ArcState:
        if level not in self.levels:
            raise UserError("unknown level", got=repr(level), expected=" ".join(map(str, self.levels)))
        seed = seed if self._seeded else 0
        key = (level, seed, ())
        shown = self._shown.get(key)
        if shown is None:
            play, shown = Play.begin(self._made, level, seed)
            shown = self._keep(key, shown)
            self._stand(key, play)
        return ArcState(level, seed, self.board.budget(level), 0, (), shown.frame, shown.frames, False, False)

    def refuse(self, state: ArcState, action: Action) -> str | None:
        name, x, y = action
        if state.done:
            return "the episode is over"
        number = self._numbers.get(name)
        if number is None:
            return f"unknown action {name!r}, expected one of {' '.join(self._numbers)}"
        if number != COMPLEX:
            return None if x is None and y is None else f"{name} takes no coordinates"
        if x is None or y is None:
            return f"{name} needs x and y"
        if not (0 <= x < SIZE and 0 <= y < SIZE):
            return f"{name} at {x},{y} is outside the frame, x and y go from 0 to {SIZE - 1}"
        return None

    def apply(self, state: ArcState, action: Action) -> ArcState:
        reason = self.refuse(state, action)
        if reason is not None:
            raise ValueError(f"{reason}: {action}")
        number = self._numbers[action.action]
        complex_ = action.x is not None and action.y is not None
        move = (number, int(action.x or 0), int(action.y or 0)) if complex_ else (number, -1, -1)
        moves = (*state.moves, move)
        shown = self._outcome(state.level, state.seed, moves)
        return state._replace(
            acts=state.acts + 1,
            moves=moves,
            frame=shown.frame,
            frames=shown.frames,
            cleared=shown.cleared,
            dead=shown.dead,
        )

    def idle(self, state: ArcState) -> ArcState:
        if state.done:
            raise ValueError("the episode is over")
        return state._replace(acts=state.acts + 1)

    def legend(self) -> str:
        names = [f"{name} with x and y" if number == COMPLEX else name for name, number in self._numbers.items()]
        return (
            f"The screen has {SIZE} rows of {SIZE} cells in colours 0 to 15. It is shown as runs, equal rows on one "
            "line: `2-4: 5x20 4x44` says that rows 2 to 4 begin with 20 cells of colour 5. x counts columns, y rows, "
            "from 0. "
            f"The level must be cleared before the acts run out. Actions of `act`: {', '.join(names)}."
        )

    def observe(self, state: ArcState) -> str:
        left = state.budget - state.acts
        return f"level {state.level}, {left} acts left\n{run_length(state.frame, self.hud_rows)}"

    def frame(self, state: ArcState) -> Frame:
        return grid(state.frame)

    def labels(self) -> Mapping[tuple[int, int], str]:
        return {}

    def actions(self, state: ArcState) -> list[ActionSpec]:
        return [] if state.done else [ActionSpec(name, number == COMPLEX) for name, number in self._numbers.items()]

    def call_words(self) -> Mapping[str, Action]:
        return self.board.call_words()

    def progress(self, state: ArcState) -> float:
        """1 exactly if cleared: a screen that looks finished before the game says so counts for a little less."""
        return 1.0 if state.cleared else min(self.board.progress(state.frame), 0.999)

    def probes(self, state: ArcState) -> dict[str, Any]:
        """Those of the board, and `frames`, `cleared`, `dead`, `actions_left`."""
        return {
            **self.board.probes(state.frame),
            "frames": state.frames,
            "cleared": state.cleared,
            "dead": state.dead,
            "actions_left": state.budget - state.acts,
        }

    def plan(self, state: ArcState) -> list[Action]:
        words = self.call_words()
        return [] if state.cleared else [words[word] for word in self.board.plan(state.frame)]

    def advice(self, state: ArcState) -> Advice:
        if state.done:
            raise ValueError("the episode is over")
        try:
            return self.board.advice(state.frame)
        except ValueError:
            return Advice((), "", ())  # nobody knows what to do here

    def place(self, state: ArcState, word: str) -> str | None:
        return self.board.place(state.frame, word)

    # The engines behind the states

    def _outcome(self, level: int, seed: int, moves: tuple[Move, ...]) -> Shown:
        key = (level, seed, moves)
        shown = self._shown.get(key)
        if shown is None:
            play = self._taken((level, seed, moves[:-1]))
            shown = self._keep(key, play.act(*moves[-1]))
            if not (shown.cleared or shown.dead):
                self._stand(key, play)
        else:
            self._shown.move_to_end(key)
        return shown

    def _taken(self, key: tuple[int, int, tuple[Move, ...]]) -> Play:
        """An engine in a state, to be acted on: the one that stands there if it is left for the first time."""
        level, seed, moves = key
        standing = self._engines.get(key)
        if key not in self._left:
            self._left.add(key)
            if standing is not None:
                return self._engines.pop(key)
        if standing is None:
            standing = self._replayed(level, seed, moves)
            self._stand(key, standing)
        return standing.copy()

    def _replayed(self, level: int, seed: int, moves: tuple[Move, ...]) -> Play:
        play, _ = Play.begin(self._made, level, seed)
        for move in moves:
            play.act(*move)
        return play

    def _stand(self, key: tuple[int, int, tuple[Move, ...]], play: Play) -> None:
        self._engines[key] = play
        self._engines.move_to_end(key)
        while len(self._engines) > ENGINES:
            self._engines.popitem(last=False)

    def _keep(self, key: tuple[int, int, tuple[Move, ...]], shown: Shown) -> Shown:
        if len(self._shown) >= SHOWN:
            self._shown.clear()
            self._frames.clear()
            self._left.clear()
        shown = shown._replace(frame=self._frames.setdefault(shown.frame, shown.frame))
        self._shown[key] = shown
        return shown
