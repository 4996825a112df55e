"""Games of the study file: one class a `kind`, with the settings that make the game what it is.

Invariant: what stands in a spec (`for_spec`) identifies the game wherever its file lies; a game that is not bundled is
named by id and pinned by SHA-256, and its file is never part of a study.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from internalize.errors import StudyError
from internalize.files import sha256_file
from internalize.study_model import Count, Settings

Region = Literal["left", "right", "top", "bottom", "wipe", "trap"]
Colour = Literal["red", "green", "blue"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DipWheelRules(Settings):
    """The hidden rule set that the study wants known."""

    stations: dict[Literal["N", "NE", "SE", "S", "SW", "NW"], Region]
    """Station -> region that its dip fills; every region once."""
    pots: dict[Literal["a", "b", "c"], Colour]
    """Pot -> colour in it; every colour once."""


class DipWheelGame(Settings):
    """The bundled game."""

    kind: Literal["dipwheel"]
    """Which game."""
    rules: DipWheelRules
    """Its hidden rules."""


class ArcGame(Settings):
    """A game of the ARC-AGI-3 toolkit; the user supplies or fetches its file, which is never redistributed."""

    kind: Literal["arc"]
    """Which game."""
    id: Annotated[str, Field(pattern=r"^[a-z0-9]{4}-[0-9a-f]{8}$")]
    """The toolkit's id: four characters and a version."""
    sha256: Sha256
    """SHA-256 of the game's Python file; another file is refused."""
    metadata_sha256: Sha256 | None = None
    """SHA-256 of the game's metadata without its download date; null: not pinned (`fetch-game` prints it)."""
    file: str | None = None
    """Where the file lies; null: where the toolkit puts it, below ENVIRONMENTS_DIR or `environment_files`."""
    level_cap: Count = 1
    """Levels that an episode may clear before it ends."""
    board: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")] | None = None
    """Module with `board()`, which reads the game's screen (docs/add-a-game.md); null: the one that is shipped."""


Game = Annotated[DipWheelGame | ArcGame, Field(discriminator="kind")]
"""Any game."""


def for_spec(game: DipWheelGame | ArcGame) -> dict[str, Any]:
    """The settings that identify the game: all but where its file lies and what it was pinned against.

    Raises:
        StudyError: there is no module of its board's name.
    """
    spec = {key: value for key, value in game.plain().items() if key not in ("file", "metadata_sha256", "board")}
    board = game.board if isinstance(game, ArcGame) else None
    return spec if board is None else {**spec, "board": board, "board_sha256": board_digest(board)}


def board_digest(module: str) -> str:
    """SHA-256 of a board's module: a board of the user's own is no part of any stage's code.

    Raises:
        StudyError: there is no such module.
    """
    try:
        found = importlib.util.find_spec(module)
    except ImportError:
        found = None
    if found is None or found.origin is None:
        raise StudyError("no module of this name", where="game.board", got=module, fix="put its folder into PYTHONPATH")
    return sha256_file(Path(found.origin))
