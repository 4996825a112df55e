"""Games of the ARC-AGI-3 toolkit behind the `Game` protocol; the toolkit and the games are the user's to install.

Invariant: importing this package imports no toolkit, and no game runs unless its file has the hash that is asked for.
"""

from __future__ import annotations

from importlib import import_module

from internalize.errors import CorruptPayload, UserError
from internalize.games.arc.board import Board
from internalize.games.arc.engine import game_class
from internalize.games.arc.game import ArcGame
from internalize.games.arc.place import locate, read_metadata, source_of
from internalize.study_games import board_digest

BOARDS: dict[str, str] = {"cd82": "internalize.games.arc.cd82"}
"""First part of a game's id -> module with `board()`."""


def from_settings(
    id: str,
    sha256: str,
    metadata_sha256: str | None = None,
    file: str | None = None,
    level_cap: int = 1,
    board: str | None = None,
    board_sha256: str | None = None,
) -> ArcGame:
    """The game of the study file's `game` section.

    Raises:
        UserError: there is no file, no board for this game, no toolkit, or `level_cap` is not 1.
        CorruptPayload: the file, its metadata or the board's module is another.
    """
    if level_cap != 1:
        raise UserError("an episode is one level", where="game.level_cap", got=str(level_cap), expected="1")
    path = locate(id, file)
    source = source_of(path, sha256)
    named = read_metadata(path, metadata_sha256).get("class_name")
    name = id.partition("-")[0]
    if board_sha256 is not None and board is not None and board_digest(board) != board_sha256:
        raise CorruptPayload("the board changed since the workflow was read", where=board, fix="run the study again")
    return ArcGame(game_class(source, named or name[0].upper() + name[1:]), board_of(name, board), id)


def board_of(name: str, module: str | None = None) -> Board:
    """The board of a game, by the first part of its id unless a module is named; UserError if nobody wrote one."""
    if module is not None:
        own: Board = import_module(module).board()
        return own
    if name not in BOARDS:
        raise UserError(
            "no board for this game: nobody has said how to read its screen",
            where="game.id",
            got=name,
            expected=" or ".join(sorted(BOARDS)),
            fix="write one, and name its module in game.board (docs/add-a-game.md)",
        )
    board: Board = import_module(BOARDS[name]).board()
    return board
