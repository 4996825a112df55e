"""Files that are either whole or absent.

Invariant: every write goes to a temporary name in the same folder, is fsynced and renamed; a reader never sees half a
file. The bytes depend on the content alone (sorted keys, fixed compression settings, no timestamps).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from internalize.errors import CorruptPayload, MissingPayload, UserError

CHUNK = 1 << 20


def canonical_json(obj: Any) -> str:
    """JSON text that is equal exactly when the values are equal: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: a float is NaN or infinite.
    """
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(obj: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of `obj`."""
    return hashlib.sha256(canonical_json(obj).encode()).hexdigest()


def link(source: Path, target: Path) -> None:
    """Puts a file at `target` by a hard link; by a copy where the file system has none.

    Raises:
        MissingPayload: the file is gone.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        raise MissingPayload("a payload file is gone", where=str(source), fix="run the study again") from error
    except OSError:  # another file system
        shutil.copyfile(source, target)


def fsync_dir(folder: Path) -> None:
    """Makes renames inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit(path: Path, write: Callable[[Path], None]) -> None:
    """Calls `write(temporary path)`, fsyncs what it wrote and renames it to `path`.

    Raises:
        UserError: the file system refused the write (disk full, no permission); nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        fsync_dir(path.parent)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def disk_error(error: OSError, path: Path) -> UserError:
    """The `UserError` for an `OSError` met while writing `path`."""
    return UserError(
        f"cannot write: {error.strerror or error}",
        where=str(path),
        expected="a writable file system with free space",
        fix="free space or change the folder, then run the same command again: what was committed is kept",
    )


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` atomically."""
    commit(path, lambda temporary: _plain_write(temporary, data))


def _plain_write(path: Path, data: bytes) -> None:
    with path.open("wb") as handle:
        handle.write(data)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, obj: Any) -> None:
    """Writes readable JSON (sorted keys, two spaces) atomically."""
    write_text(path, json.dumps(obj, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> int:
    """Writes one JSON value a line; `.gz` and `.zst` names are compressed with fixed settings.

    Returns:
        The number of rows.
    """
    lines = [json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    data = "".join(lines).encode()
    if path.suffix == ".gz":
        buffer = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=6, mtime=0) as packed:
            packed.write(data)
        data = buffer.getvalue()
    elif path.suffix == ".zst":
        data = zstandard.ZstdCompressor(level=3, write_content_size=True, write_checksum=True).compress(data)
    write_bytes(path, data)
    return len(lines)


def read_json(path: Path) -> Any:
    """Reads one JSON file.

    Raises:
        UserError: it is missing, or is not JSON.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError("file not found", where=str(path)) from error
    except ValueError as error:
        raise CorruptPayload(
            f"not valid JSON ({error})", where=str(path), fix="restore the file or delete it to rebuild it"
        ) from error


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yields the rows of a `.jsonl`, `.jsonl.gz` or `.jsonl.zst` file.

    Raises:
        UserError: the file is missing, cannot be unpacked, or a line is not JSON (the line is named).
    """
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
        elif path.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)) as reader:
                raw = reader.read()
    except FileNotFoundError as error:
        raise UserError("file not found", where=str(path)) from error
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise CorruptPayload(
            f"cannot unpack ({error})", where=str(path), fix="delete the store entry to rebuild it"
        ) from error
    for number, line in enumerate(raw.decode().removesuffix("\n").split("\n") if raw else (), start=1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise CorruptPayload(f"not valid JSON ({error})", where=f"{path}, line {number}") from error


def sha256_file(path: Path) -> str:
    """SHA-256 (hex) of a file, read in 1 MiB pieces."""
    state = hashlib.sha256()
    with path.open("rb") as handle:
        while piece := handle.read(CHUNK):
            state.update(piece)
    return state.hexdigest()


def tree_files(folder: Path) -> list[Path]:
    """All regular files below `folder`, sorted by their relative POSIX path."""
    return sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.relative_to(folder).as_posix())
