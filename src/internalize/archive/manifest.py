"""The manifests: every file of an archive with its hash, for people (`sha256sum -c`) and for programs.

Invariant: `MANIFEST.sha256` is a function of `MANIFEST.json`, and `MANIFEST.json` of its own content (it holds a digest
of itself), so that a changed byte in either is found and named. A file's hash comes from the receipt that vouches for
it, or from one read of the file; nothing is read twice.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from internalize.archive.layout import MANIFEST, SUMS, media_type
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import digest, write_bytes

MANIFEST_VERSION = 1
PIECE = 1 << 20


class File(BaseModel):
    """One file of an archive."""

    model_config = ConfigDict(extra="forbid")
    sha256: str
    bytes: int
    media_type: str
    receipt: str | None = None
    """Hash of the receipt whose stage made the file; None for what differs from run to run (times, log)."""
    schema_version: int | None = None
    """Of the table that the file belongs to."""


class TableEntry(BaseModel):
    """One config of the dataset card."""

    model_config = ConfigDict(extra="forbid")
    rows: int
    files: list[str]
    schema_version: int


class Manifest(BaseModel):
    """`MANIFEST.json`."""

    model_config = ConfigDict(extra="forbid")
    version: int = MANIFEST_VERSION
    study: str
    archive_receipt: str | None = None
    """Hash of the receipt of the archive stage."""
    files: dict[str, File]
    """By path below the root, sorted; the two manifests themselves are not among them."""
    tables: dict[str, TableEntry] = {}
    total_files: int = 0
    total_bytes: int = 0

    def render(self) -> bytes:
        """The file's bytes."""
        plain = self.model_dump()
        plain["files"] = dict(sorted(plain["files"].items()))
        plain["total_files"] = len(self.files)
        plain["total_bytes"] = sum(file.bytes for file in self.files.values())
        plain["digest"] = digest(plain)
        return (json.dumps(plain, indent=1, ensure_ascii=False) + "\n").encode()


def write_manifests(root: Path, manifest: Manifest) -> None:
    """Writes both manifests, `MANIFEST.sha256` last: where it lies, the archive is whole."""
    rendered = manifest.render()
    write_bytes(root / MANIFEST, rendered)
    write_bytes(root / SUMS, sums(manifest, rendered))


def sums(manifest: Manifest, rendered: bytes) -> bytes:
    """The bytes of `MANIFEST.sha256`: one line a file, `MANIFEST.json` among them."""
    hashes = {path: file.sha256 for path, file in manifest.files.items()}
    hashes[MANIFEST] = hashlib.sha256(rendered).hexdigest()
    return "".join(f"{value}  {path}\n" for path, value in sorted(hashes.items())).encode()


def read_manifest(root: Path) -> Manifest:
    """The manifest of an archive.

    Raises:
        MissingPayload: it has none (a folder that is no archive, or one that is not finished).
        CorruptPayload: the file is not what `render` writes.
    """
    path = root / MANIFEST
    if not path.is_file():
        raise MissingPayload("no archive here", where=str(root), expected=f"{MANIFEST} in it", fix="name its folder")
    data = path.read_bytes()
    try:
        plain = json.loads(data)
        plain.pop("digest")
        manifest = Manifest.model_validate(plain)
    except (ValueError, ValidationError, KeyError, AttributeError) as error:
        raise CorruptPayload("not a manifest", where=str(path), got=str(error).splitlines()[0]) from error
    if manifest.render() != data:
        raise CorruptPayload("the manifest was changed after it was written", where=str(path))
    for name in manifest.files:
        if not is_safe(name):
            raise CorruptPayload("a path that leaves the archive", where=str(path), got=repr(name))
    return manifest


def is_safe(name: str) -> bool:
    """Is `name` a plain relative path that stays below the root and fits a line of `sha256sum`?"""
    parts = PurePosixPath(name).parts
    plain = bool(parts) and not name.startswith("/") and ".." not in parts
    return plain and name == PurePosixPath(name).as_posix() and not set(name) & set("\n\r\\\0")


def entry(sha256: str, size: int, path: str, receipt: str | None) -> File:
    """A file's line."""
    return File(sha256=sha256, bytes=size, media_type=media_type(path), receipt=receipt)


def hash_files(paths: Sequence[Path], threads: int | None = None) -> list[str]:
    """SHA-256 (hex) of each file, read once, `threads` files at a time (hashing leaves the interpreter's lock)."""
    workers = threads or os.cpu_count() or 1
    if workers == 1 or len(paths) < 2:
        return _hash_batch(paths)
    share = max(1, min(64, len(paths) // (4 * workers) or 1))
    batches = [paths[at : at + share] for at in range(0, len(paths), share)]
    with ThreadPoolExecutor(workers) as pool:
        return [value for batch in pool.map(_hash_batch, batches) for value in batch]


def _hash_batch(paths: Iterable[Path]) -> list[str]:
    buffer = bytearray(PIECE)
    found = []
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            found.append(_digest(handle, buffer))
        finally:
            os.close(handle)
    return found


def _digest(handle: int, buffer: bytearray) -> str:
    state, view = hashlib.sha256(), memoryview(buffer)
    while count := os.readv(handle, [buffer]):
        state.update(view[:count])
    return state.hexdigest()


def git_sha1(path: Path) -> str:
    """The id that git gives a file's content: what the hub names small files by."""
    state = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as handle:
        while piece := handle.read(PIECE):
            state.update(piece)
    return state.hexdigest()


def as_tables(facts: Mapping[str, Any], versions: Mapping[str, int]) -> dict[str, TableEntry]:
    """The manifest's `tables` from the archive receipt's facts."""
    return {
        name: TableEntry(rows=sum(files.values()), files=sorted(files), schema_version=versions[name])
        for name, files in facts["tables"].items()
    }
