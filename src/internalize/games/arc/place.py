"""Where the file of an ARC-AGI-3 game lies, and whether it is the one that the study names.

Invariant: no byte of a game's file is executed before its SHA-256 has been compared with the study's; what is executed
is what was hashed. No network and no toolkit here: jobs on compute nodes work offline.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from internalize.errors import CorruptPayload, UserError
from internalize.files import digest

FOLDER = "ENVIRONMENTS_DIR"
"""The toolkit's own variable for the folder of its games."""
DEFAULT_FOLDER = "environment_files"
METADATA = "metadata.json"
CHANGING = ("date_downloaded", "local_dir")
"""Keys of the metadata that say when and where it was fetched, not what the game is."""


def environments() -> Path:
    """Folder of the toolkit's games: ENVIRONMENTS_DIR, or `environment_files` here or beside the Snakefile."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    here = Path(DEFAULT_FOLDER)
    home = Path(os.environ.get("INTERNALIZE_HOME", ".")) / DEFAULT_FOLDER
    return home if home.exists() and not here.exists() else here


def place_of(game_id: str) -> Path:
    """Where the toolkit keeps the file of `abcd-01234567`: `<folder>/abcd/01234567/abcd.py`."""
    name, _, version = game_id.partition("-")
    return environments() / name / version / f"{name}.py"


def locate(game_id: str, file: str | None = None) -> Path:
    """The game's file: `file`, the one that the variable INTERNALIZE_GAME_FILE names, or the toolkit's place.

    Raises:
        UserError: there is none.
    """
    named = file or os.environ.get("INTERNALIZE_GAME_FILE")
    path = Path(named) if named else place_of(game_id)
    if not path.is_file():
        raise UserError(
            f"the file of the game {game_id} is not here",
            where=str(path),
            expected="the game's Python file; it is the user's own, and not part of this package",
            fix="fetch it on a machine with a network: ARC_API_KEY=... internalize fetch-game STUDY, "
            f"or copy it there, or name the folder in {FOLDER}",
        )
    return path


def source_of(path: Path, sha256: str) -> str:
    """The file's text.

    Raises:
        CorruptPayload: it is another file than the one that the study names.
    """
    data = path.read_bytes()
    got = hashlib.sha256(data).hexdigest()
    if got != sha256:
        raise CorruptPayload(
            "the game's file is not the one that the study names",
            where=str(path),
            expected=f"sha256 {sha256}",
            got=f"sha256 {got}",
            fix="another version of the game is another game: fetch the right one, or change game.sha256",
        )
    return data.decode("utf-8")


def metadata_digest(data: dict[str, Any]) -> str:
    """SHA-256 of the metadata in canonical form, without the keys that change from one download to the next."""
    return digest({key: value for key, value in data.items() if key not in CHANGING})


def read_metadata(path: Path, sha256: str | None = None) -> dict[str, Any]:
    """The metadata beside a game's file; empty when there is none and none is pinned.

    Raises:
        CorruptPayload: it is not JSON, or not what the study names.
        UserError: the study pins it and it is not here.
    """
    where = path.with_name(METADATA)
    if not where.exists():
        if sha256 is not None:
            raise UserError("the game's metadata is not here", where=str(where), fix="fetch the game again")
        return {}
    try:
        data: dict[str, Any] = json.loads(where.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptPayload("the game's metadata is no JSON", where=str(where), got=str(error)) from error
    got = metadata_digest(data)
    if sha256 is not None and got != sha256:
        raise CorruptPayload(
            "the game's metadata is not what the study names",
            where=str(where),
            expected=f"sha256 {sha256} (canonical, without {', '.join(CHANGING)})",
            got=f"sha256 {got}",
            fix="the baselines of a game have changed under one id before: state the digest that you mean",
        )
    return data
