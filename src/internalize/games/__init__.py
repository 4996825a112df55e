"""Games behind one protocol. `make_game` imports a game's module only when that game is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from internalize.errors import UserError
from internalize.games.protocol import Game

#: kind -> (module, factory); the factory takes the settings that stand beside `kind` in the study file.
KINDS: dict[str, tuple[str, str]] = {
    "dipwheel": ("internalize.games.dipwheel", "from_settings"),
    "arc": ("internalize.games.arc", "from_settings"),
}


def make_game(kind: str, **settings: Any) -> Game:
    """The game of `kind` (study file: `game.kind`) with its other settings; UserError names the known
    kinds."""
    if kind not in KINDS:
        raise UserError(
            "unknown game kind",
            where="game.kind",
            got=repr(kind),
            expected=" or ".join(sorted(KINDS)),
            fix="check the spelling",
        )
    module, factory = KINDS[kind]
    game: Game = getattr(import_module(module), factory)(**settings)
    return game
