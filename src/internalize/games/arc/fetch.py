"""The fetch_game stage: the user's own file, or the one of the ARC-AGI-3 service, pinned by SHA-256.

Invariant: the receipt and the payload hold hashes only, never the game; a file that was not hashed is never executed
(the toolkit's own download executes it first, so it is not used here), and the API key is read from the environment and
written nowhere.
"""

from __future__ import annotations

import importlib.util
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from internalize.errors import CorruptPayload, UserError
from internalize.files import write_bytes, write_json
from internalize.games.arc.place import METADATA, locate, metadata_digest, place_of, read_metadata, source_of

KEY = "ARC_API_KEY"
URL = "ARC_BASE_URL"
DEFAULT_URL = "https://three.arcprize.org"
SECONDS = 30.0
LARGEST = 10 * 1024 * 1024

Progress = Callable[[str], None]


def build(folder: Path, spec: Mapping[str, Any], inputs: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Writes game.json: id, hashes, human baselines and where they were compared.

    Args:
        spec: `id`, `sha256`, `metadata_sha256` (or null), `board` (or none: the shipped one).
        inputs: none are used.

    Returns:
        Facts: id, sha256, metadata_sha256, baselines.

    Raises:
        UserError: there is no file, and no key or network to fetch it with.
        CorruptPayload: the file or the metadata is another, or the board's figures are not those of the game.
    """
    game_id = str(spec["id"])
    try:
        path = locate(game_id)
        progress(f"game: {game_id} is here already")
    except UserError:
        path = fetch(game_id, str(spec["sha256"]), progress)
    source_of(path, str(spec["sha256"]))
    metadata = read_metadata(path, spec.get("metadata_sha256"))
    facts = {
        "id": game_id,
        "sha256": spec["sha256"],
        "metadata_sha256": metadata_digest(metadata) if metadata else None,
        "baselines": metadata.get("baseline_actions", []),
    }
    _check_board(spec, progress)
    write_json(folder / "game.json", facts)
    progress(f"game: sha256 agrees; metadata {facts['metadata_sha256'] or 'none'}")
    return facts


def _check_board(spec: Mapping[str, Any], progress: Progress) -> None:
    """Holds the figures of the board against the game; a login node without the engine leaves that to the knowledge
    stage, whose claims would all fail."""
    if importlib.util.find_spec("arcengine") is None:
        progress("game: arcengine is not installed here, the board is not held against the game")
        return
    from internalize.games.arc import BOARDS, from_settings

    if spec.get("board") is None and str(spec["id"]).partition("-")[0] not in BOARDS:
        return
    game = from_settings(**spec)
    wrong = game.board.misfits(game)
    if wrong:
        raise CorruptPayload("the board does not fit the game", where=game.id, got="; ".join(wrong[:5]))
    progress("game: the board fits, level by level")


def fetch(game_id: str, sha256: str, progress: Progress) -> Path:
    """Downloads a game to the toolkit's place; nothing is written unless the hash agrees.

    Raises:
        UserError: no key, or the service refuses or does not answer.
        CorruptPayload: the service has another file under this id.
    """
    key = os.environ.get(KEY)
    if not key:
        raise UserError(
            f"the game {game_id} must be fetched, and there is no key for it",
            where=f"environment variable {KEY}",
            expected="a key of three.arcprize.org (free)",
            fix=f"export {KEY}=..., or put the file at {place_of(game_id)} yourself",
        )
    base = os.environ.get(URL, DEFAULT_URL).rstrip("/")
    name = game_id.partition("-")[0]
    progress(f"game: fetching {game_id} from {base}")
    metadata = _metadata(_get(f"{base}/api/games/{name}", key), game_id)
    source = _get(f"{base}/api/games/{game_id}/source", key)
    path = place_of(game_id)
    checked = path.with_name(f".{path.name}.fetched")
    write_bytes(checked, source)
    try:
        source_of(checked, sha256)
    except CorruptPayload:
        checked.unlink()
        raise
    write_json(path.with_name(METADATA), metadata)
    checked.replace(path)
    return path


def _metadata(data: bytes, game_id: str) -> dict[str, Any]:
    try:
        metadata: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise UserError("the service's answer is no JSON", where=game_id, got=repr(data[:60])) from error
    if metadata.get("game_id") != game_id:
        raise CorruptPayload(
            "the service offers another version of the game",
            where="game.id",
            expected=game_id,
            got=str(metadata.get("game_id")),
        )
    return metadata


def _get(url: str, key: str) -> bytes:
    request = urllib.request.Request(url, headers={"X-Api-Key": key, "Accept": "*/*"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            data: bytes = reply.read(LARGEST + 1)
    except urllib.error.HTTPError as error:
        fix = f"check {KEY}" if error.code in (401, 403) else "try again later"
        raise UserError("the service refuses the game", where=url, got=f"HTTP {error.code}", fix=fix) from error
    except OSError as error:
        raise UserError(
            "the service does not answer", where=url, got=str(error), fix="run this on a machine with a network"
        ) from error
    if len(data) > LARGEST:
        raise CorruptPayload("the service's answer is too large to be a game", where=url)
    return data
