"""The toolkit's engine behind three calls: begin a level, act, copy.

Invariant: RESET never reaches a game that has begun (after a level's first act it restarts the level, before it it
throws the whole game back to level 1); what happened is read from the acting call's own frames, never from the reply to
a finished game, which is empty; nothing that a game prints reaches standard output, where a tool server speaks.

Only `arcengine` is used to play. `arc_agi`, which finds and downloads games, logs to standard output, reads `.env` from
the working directory when it is imported, and is not needed offline.
"""

from __future__ import annotations

import copy
import inspect
import sys
import types
from typing import Any, NamedTuple

from internalize.errors import UserError

SIZE = 64
"""Cells of a frame's side."""
RESET, COMPLEX = 0, 6
INSTALL = (
    "Python 3.12 or newer: pip install 'internalize[arc]'; Python 3.11, which the engine does not declare but runs on: "
    "pip install --no-deps --ignore-requires-python arcengine==0.9.3"
)


class Shown(NamedTuple):
    """What one act showed."""

    frame: bytes
    """The last frame of the level that was played, row by row; on a clear, the one before the next level appears."""
    frames: int
    """How many frames there were."""
    cleared: bool
    dead: bool


class Play:
    """One running game. `act` changes it; `copy` is another game in the same state."""

    def __init__(self, game: Any) -> None:
        self._game = game

    @classmethod
    def begin(cls, made: type, level: int, seed: int) -> tuple[Play, Shown]:
        """A fresh game at the start of a level (from 1).

        Raises:
            UserError: the game has no such level.
        """
        from arcengine import ActionInput

        game = made(**({"seed": seed} if takes_seed(made) else {}))
        game.perform_action(ActionInput(id=RESET), raw=True)
        levels = len(game._levels)
        if not 1 <= level <= levels:
            raise UserError("the game has no such level", got=str(level), expected=f"1 to {levels}")
        game.set_level(level - 1)
        frame = game.camera.render(game.current_level.get_sprites())
        return cls(game), Shown(_bytes(frame), 1, False, False)

    def act(self, number: int, x: int | None = None, y: int | None = None) -> Shown:
        """Carries out one action.

        Raises:
            ValueError: RESET, a game that is over, or an action that the engine does not have.
        """
        from arcengine import ActionInput, GameAction, GameState

        game = self._game
        if number == RESET or game._state in (GameState.WIN, GameState.GAME_OVER):
            raise ValueError("a reset, or an action in a game that is over")
        data = {"x": x, "y": y} if number == COMPLEX else {}
        before = game._score
        reply = game.perform_action(ActionInput(id=GameAction.from_id(number), data=data), raw=True)
        won = reply.state == GameState.WIN
        cleared = won or reply.levels_completed > before
        frames = reply.frame
        # A clear appends one frame, of the next level; the last level's clear does not.
        last = frames[-2] if cleared and not won and len(frames) > 1 else frames[-1]
        shown = len(frames) - (cleared and not won and len(frames) > 1)
        return Shown(_bytes(last), shown, cleared, reply.state == GameState.GAME_OVER and not cleared)

    def copy(self) -> Play:
        """An independent game in the same state. Never pickled: game classes exist in no module.

        Levels that an episode of one level cannot reach, and the clean ones that a RESET would restore, are shared.
        """
        game = self._game
        here = game._current_level_index
        apart = {id(level) for level in game._levels[here : here + 2]}
        shared = [level for level in (*game._clean_levels, *game._levels) if id(level) not in apart]
        return Play(copy.deepcopy(game, {id(thing): thing for thing in (game._clean_levels, *shared)}))

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the actions that the game offers, without RESET."""
        return tuple(number for number in self._game._available_actions if number != RESET)

    @property
    def levels(self) -> int:
        """How many levels the game has."""
        return len(self._game._levels)


def game_class(source: str, name: str) -> type:
    """The class of a game, from text whose hash was compared with the study's.

    Args:
        source: the file's text.
        name: name of the class.

    Raises:
        UserError: the engine is not installed, or the text has no such game.
    """
    try:
        from arcengine import ARCBaseGame
    except ImportError as error:
        raise UserError("the ARC engine is not installed", got=str(error), fix=INSTALL) from error
    module = types.ModuleType(f"internalize_arc_{name.lower()}")
    module.__dict__["print"] = _print
    exec(compile(source, f"<{name.lower()}>", "exec"), module.__dict__)
    made = module.__dict__.get(name)
    if not isinstance(made, type) or not issubclass(made, ARCBaseGame):
        raise UserError("the file holds no game of this name", got=str(made), expected=f"class {name}(ARCBaseGame)")
    return made


def _print(*words: Any, **options: Any) -> None:
    """What a game's `print` does: standard output belongs to the tool server's protocol."""
    print(*words, **{**options, "file": sys.stderr})


def takes_seed(made: type) -> bool:
    """Does the game's constructor take a seed? Else all seeds are one game."""
    return "seed" in inspect.signature(made).parameters


def _bytes(frame: Any) -> bytes:
    import numpy

    return bytes(numpy.ascontiguousarray(frame, dtype=numpy.uint8))
