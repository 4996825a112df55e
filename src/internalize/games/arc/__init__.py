"""Games of the ARC-AGI-3 toolkit behind the `Game` protocol; the toolkit and the games are the user's to install.

Invariant: importing this package imports no toolkit, and no game runs unless its file has the hash that is asked for.
"""

from __future__ import annotations

from importlib import import_module

from internalize.errors import UserError
from internalize.games.arc.board import Board
from internalize.games.arc.engine import game_class
from internalize.games.arc.game import ArcGame
from internalize.games.arc.place import locate, read_metadata, source_of

BOARDS: dict[str, str] = {"cd82": "internalize.games.arc.cd82"}
"""First part of a game's id -> module with `board()`."""


def from_settings(
    id: str, sha256: str, metadata_sha256: str | None = None, file: str | None = None, level_cap: int = 1
) -> ArcGame:
    """The game of the study file's `game` section.

    Raises:
        UserError: there is no file, no board for this game, no toolkit, or `level_cap` is not 1.
        CorruptPayload: the file or its metadata is another.
    """
    if level_cap != 1:
        raise UserError("an episode is one level", where="game.level_cap", got=str(level_cap), expected="1")
    path = locate(id, file)
    source = source_of(path, sha256)
    named = read_metadata(path, metadata_sha256).get("class_name")
    name = id.partition("-")[0]
    return ArcGame(game_class(source, named or name[0].upper() + name[1:]), board_of(name), id)


def board_of(name: str) -> Board:
    """The board of a game, by the first part of its id; UserError if nobody wrote one."""
    if name not in BOARDS:
        raise UserError(
            "no board for this game: nobody has said how to read its screen",
            where="game.id",
            got=name,
            expected=" or ".join(sorted(BOARDS)),
            fix="write one (docs/add-a-game.md)",
        )
    board: Board = import_module(BOARDS[name]).board()
    return board
