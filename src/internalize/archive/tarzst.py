"""Writing `.tar.zst` files that are equal for equal content and can be read from the middle.

Invariant: the bytes depend on the members' names, contents and executable bits, on the compression level and on the
zstd library alone: never on owners, times, the file system's order or the number of threads. The tar stream is cut
every `FRAME` bytes and each piece is one zstd frame, so that a reader decompresses only what it asks for; a seek table
ends the file (the zstd project's seekable format, a skippable frame that other readers pass over). Beside the file lies
an index, one JSON line a folder: where it starts in the tar stream and how long it is.
"""

from __future__ import annotations

import os
import struct
import tarfile
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import zstandard

from internalize.errors import UserError
from internalize.files import canonical_json, disk_error

FRAME = 4 << 20
"""Bytes of tar stream in one zstd frame."""
BLOCK = 512
SEEK_TABLE_MAGIC = 0x184D2A5E
SEEKABLE_MAGIC = 0x8F92EAB1
INDEX_SUFFIX = ".index.jsonl"
PIECE = 1 << 20


@dataclass(frozen=True)
class Folder:
    """One line of the index."""

    folder: str
    offset: int
    """Where its first member starts in the tar stream."""
    bytes: int
    """Its length there."""
    files: int

    def row(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {"folder": self.folder, "offset": self.offset, "bytes": self.bytes, "files": self.files}


class TarZst:
    """A `.tar.zst` under construction; use it as a context manager, then `index` holds its folders.

    Members are written in the order they are added: sort them. Memory: a few frames a thread.

    Args:
        path: file to write (not atomic: write into a folder that appears as a whole).
        level: zstd level.
        threads: frames that are compressed at once.
    """

    def __init__(self, path: Path, level: int = 3, threads: int = 1) -> None:
        self.path = path
        self.index: list[Folder] = []
        self._out: IO[bytes] = path.open("wb")
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._level = level
        self._most = 2 * threads
        self._waiting: deque[Future[tuple[bytes, int]]] = deque()
        self._buffer = bytearray()
        self._offset = 0
        self._sizes: list[tuple[int, int]] = []
        self._of_thread = threading.local()

    def __enter__(self) -> TarZst:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as failed:
            raise disk_error(failed, self.path) from failed
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
            self._out.close()

    def begin(self, folder: str) -> None:
        """Starts a folder: what follows, up to the next `begin`, can be read alone."""
        self._close_folder()
        self.index.append(Folder(folder, self._offset, 0, 0))
        self._write(header(folder.rstrip("/") + "/", 0, 0o755, tarfile.DIRTYPE))

    def add(self, name: str, data: bytes, executable: bool = False) -> None:
        """Adds a file below the folder that was begun."""
        self._write(header(self._member(name), len(data), 0o755 if executable else 0o644, tarfile.REGTYPE))
        self._write(data)
        self._pad(len(data))

    def add_file(self, name: str, path: Path) -> None:
        """Adds a regular file from disk, in pieces.

        Raises:
            UserError: the file is no regular file, or changes its size while it is read.
        """
        if path.is_symlink() or not path.is_file():
            raise UserError("only regular files are packed", where=str(path))
        with path.open("rb") as handle:
            status = os.fstat(handle.fileno())
            mode = 0o755 if status.st_mode & 0o100 else 0o644
            self._write(header(self._member(name), status.st_size, mode, tarfile.REGTYPE))
            left = status.st_size
            while left and (piece := handle.read(min(PIECE, left))):
                self._write(piece)
                left -= len(piece)
            if left or handle.read(1):
                raise UserError("a file changed while it was packed", where=str(path), fix="end its writer, pack again")
        self._pad(status.st_size)

    def _member(self, name: str) -> str:
        last = self.index[-1]
        self.index[-1] = Folder(last.folder, last.offset, 0, last.files + 1)
        return f"{last.folder.rstrip('/')}/{name}"

    def _close_folder(self) -> None:
        if self.index:
            last = self.index[-1]
            self.index[-1] = Folder(last.folder, last.offset, self._offset - last.offset, last.files)

    def _pad(self, size: int) -> None:
        if size % BLOCK:
            self._write(bytes(BLOCK - size % BLOCK))

    def _write(self, data: bytes) -> None:
        self._offset += len(data)
        room = FRAME - len(self._buffer)
        while len(data) >= room:
            self._buffer += data[:room]
            full, self._buffer = self._buffer, bytearray()  # handed over, not copied
            self._frame(full)
            data, room = data[room:], FRAME
        self._buffer += data

    def _frame(self, data: bytearray) -> None:
        if self._pool is None:
            self._put(*self._compressed(data))
            return
        self._waiting.append(self._pool.submit(self._compressed, data))
        while len(self._waiting) > self._most:
            self._put(*self._waiting.popleft().result())

    def _compressed(self, data: bytearray) -> tuple[bytes, int]:
        compressor = getattr(self._of_thread, "compressor", None)
        if compressor is None:
            compressor = zstandard.ZstdCompressor(level=self._level, write_checksum=True, write_content_size=True)
            self._of_thread.compressor = compressor
        return compressor.compress(data), len(data)

    def _put(self, frame: bytes, size: int) -> None:
        self._out.write(frame)
        self._sizes.append((len(frame), size))

    def _finish(self) -> None:
        self._close_folder()
        self._write(bytes(2 * BLOCK))
        if self._buffer:
            self._frame(self._buffer)
        while self._waiting:
            self._put(*self._waiting.popleft().result())
        table = b"".join(struct.pack("<II", packed, plain) for packed, plain in self._sizes)
        table += struct.pack("<IBI", len(self._sizes), 0, SEEKABLE_MAGIC)
        self._out.write(struct.pack("<II", SEEK_TABLE_MAGIC, len(table)) + table)
        self._out.flush()
        # not through `files`: syncing it would wait for the whole archive; the store syncs both when it commits
        with self.path.with_name(self.path.name + INDEX_SUFFIX).open("w") as index:
            index.writelines(canonical_json(folder.row()) + "\n" for folder in self.index)


def pack_tree(root: Path, target: Path, level: int = 3, threads: int = 1) -> list[Folder]:
    """Packs a folder: each of its sub-folders becomes a folder of the index, files beside them one called `.`.

    Raises:
        UserError: something in it is neither a regular file nor a folder.
    """
    with TarZst(target, level, threads) as packed:
        for top in _tops(root):
            packed.begin(top.relative_to(root).as_posix())
            for path in _files(top, deep=top != root):
                packed.add_file(path.relative_to(top).as_posix(), path)
    return packed.index


def header(name: str, size: int, mode: int, kind: bytes) -> bytes:
    """A tar header of owner 0 and time 0: ustar where the name and size fit it, PAX records before it where not."""
    raw = name.encode()
    if len(raw) > 100 or size >= 1 << 33:
        member = tarfile.TarInfo(name.rstrip("/"))
        member.size, member.mode, member.type = size, mode, kind
        return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
    text = b"%-100b%07o\0%07o\0%07o\0%011o\0%011o\0        %b" % (raw.ljust(100, b"\0"), mode, 0, 0, size, 0, kind)
    block = bytearray(text + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\x000000000\0")
    block += bytes(BLOCK - len(block))
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _tops(root: Path) -> Iterator[Path]:
    found = sorted(root.iterdir(), key=lambda path: path.name)
    for path in found:
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise UserError("only regular files and folders are packed", where=str(path))
    if any(path.is_file() for path in found):
        yield root
    yield from (path for path in found if path.is_dir())


def _files(folder: Path, deep: bool) -> Iterator[Path]:
    for path in sorted(folder.iterdir(), key=lambda one: one.name):
        if path.is_dir() and not path.is_symlink():
            if deep:
                yield from _files(path, deep)
        else:
            yield path
