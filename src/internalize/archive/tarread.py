"""Reading `.tar.zst` files of unknown origin without trusting them.

Invariant: a member reaches the caller only if its name stays below the archive's root, it is a plain file or folder,
its name came once, and sizes and counts are within the limits; anything else raises before a byte of it is used.
Nothing is ever extracted to disk by this module.
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import zstandard

from internalize.archive.tarzst import INDEX_SUFFIX, SEEK_TABLE_MAGIC, SEEKABLE_MAGIC, Folder
from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.files import read_jsonl

PIECE = 1 << 20
LONGEST_HEADER = 1 << 20
"""Bytes of PAX records or of a long name."""


@dataclass(frozen=True)
class Limits:
    """What a reader accepts."""

    files: int = 5_000_000
    bytes: int = 1 << 42
    """Of all members together."""
    member: int = 1 << 36
    ratio: int = 2000
    """Decompressed bytes a compressed byte, once `floor` bytes came out: zstd packs text 3 to 50 times, zeros 10,000
    times and more."""
    floor: int = 64 << 20
    window: int = 128 << 20
    """Greatest zstd window, which is what decompression needs in memory."""


LIMITS = Limits()


@dataclass(frozen=True)
class Member:
    """A file of an archive; read `data` before the next one is asked for."""

    name: str
    size: int
    data: IO[bytes]


class Refused(CorruptPayload):
    """An archive that no honest packer made."""

    title = "archive refused"


def members(path: Path, limits: Limits = LIMITS) -> Iterator[Member]:
    """The files of a `.tar.zst`, one after the other.

    Raises:
        Refused: a name that leaves the root, a link, a device, a name twice, or more than the limits allow.
        CorruptPayload: not a whole `.tar.zst`.
    """
    with path.open("rb") as raw:
        yield from _members(_Bounded(raw, path.stat().st_size, limits, str(path)), str(path), limits)


def read_folder(path: Path, folder: str, limits: Limits = LIMITS) -> Iterator[Member]:
    """The files of one folder of the index, decompressing only the frames that it lies in.

    Raises:
        MissingPayload: the index has no such folder.
        Refused, CorruptPayload: as `members`; also when index and archive contradict each other.
    """
    entry = next((one for one in read_index(path) if one.folder == folder), None)
    if entry is None:
        raise MissingPayload("no such folder in the archive", where=str(path), got=folder)
    if entry.bytes > limits.bytes:
        raise Refused("a folder is larger than allowed", where=f"{path}: {folder}", got=f"{entry.bytes} bytes")
    data = read_range(path, entry.offset, entry.bytes, limits)
    for member in _members(io.BytesIO(data), str(path), limits):
        if not member.name.startswith(f"{folder}/"):
            raise Refused("the index points at another folder", where=f"{path}: {folder}", got=member.name)
        yield member


def read_index(path: Path) -> list[Folder]:
    """The folders of an archive, from the index beside it.

    Raises:
        CorruptPayload: a line of the index is not one of ours.
    """
    index = path.with_name(path.name + INDEX_SUFFIX)
    try:
        found = [Folder(**row) for row in read_jsonl(index)]
        if all(type(one.folder) is str and one.offset >= 0 and one.bytes >= 0 for one in found):
            return found
    except TypeError:
        pass
    raise CorruptPayload("not an index", where=str(index), expected="folder, offset, bytes and files in each line")


def read_range(path: Path, offset: int, size: int, limits: Limits = LIMITS) -> bytes:
    """Bytes `offset` to `offset + size` of the tar stream.

    Raises:
        Refused: a frame says, or turns out, to be larger than the seek table allows.
        CorruptPayload: there is no seek table, or the range lies outside.
    """
    found = bytearray()
    end, at, place = offset + size, 0, 0
    touched = []
    for packed, plain in seek_table(path):
        if at < end and at + plain > offset:
            touched.append((at, place, packed, plain))
        at += plain
        place += packed
    most = max(limits.floor, limits.ratio * sum(packed for _, _, packed, _ in touched))
    if sum(plain for *_, plain in touched) > most:
        raise Refused("a decompression bomb", where=str(path), got=f"more than {most} bytes out of a small file")
    with path.open("rb") as handle:
        for at, place, packed, plain in touched:
            handle.seek(place)
            data = _one_frame(handle.read(packed), plain, path, limits)
            found += data[max(0, offset - at) : end - at]
    if len(found) != size:
        raise CorruptPayload("the index points outside the archive", where=str(path), expected=f"{size} bytes")
    return bytes(found)


def seek_table(path: Path) -> list[tuple[int, int]]:
    """Compressed and plain size of each frame.

    Raises:
        CorruptPayload: the file has no whole seek table, or one that does not fit it.
    """
    total = path.stat().st_size
    with path.open("rb") as handle:
        handle.seek(max(0, total - 9))
        tail = handle.read(9)
        if len(tail) == 9:
            count, descriptor, magic = struct.unpack("<IBI", tail)
            size = 8 * count + 9
            if magic == SEEKABLE_MAGIC and descriptor == 0 and size + 8 <= total:
                handle.seek(total - size - 8)
                kind, length = struct.unpack("<II", handle.read(8))
                frames = list(struct.iter_unpack("<II", handle.read(8 * count)))
                if kind == SEEK_TABLE_MAGIC and length == size and sum(f[0] for f in frames) + size + 8 == total:
                    return [(int(packed), int(plain)) for packed, plain in frames]
    raise CorruptPayload("no seek table at the end", where=str(path), expected="a file written by `internalize`")


def safe_name(name: str, where: str) -> str:
    """`name` if it is a relative path that stays where it is; else raises Refused."""
    path = PurePosixPath(name)
    if not name or name.startswith("/") or "\\" in name or "\0" in name or ".." in path.parts or path.parts[0] == "~":
        raise Refused("a name that leaves the archive", where=where, got=repr(name)[:200])
    return path.as_posix()


def _members(stream: Any, where: str, limits: Limits) -> Iterator[Member]:
    seen: set[str] = set()
    total = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|", errorlevel=2, tarinfo=_Careful) as archive:
            for entry in archive:
                name = safe_name(entry.name, where)
                if not (entry.isreg() or entry.isdir()) or entry.issparse():
                    raise Refused("neither a file nor a folder", where=f"{where}: {name}", got=_kind(entry))
                if name in seen:
                    raise Refused("a name comes twice", where=where, got=name)
                seen.add(name)
                total += entry.size
                if len(seen) > limits.files or total > limits.bytes or entry.size > limits.member:
                    raise Refused("more than a reader accepts", where=f"{where}: {name}", got=f"{total} bytes so far")
                archive.members = []  # type: ignore[attr-defined]  # tarfile would keep every header in memory
                if entry.isreg():
                    data = archive.extractfile(entry)
                    assert data is not None
                    yield Member(name, entry.size, data)
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise CorruptPayload(f"not a whole .tar.zst ({error})", where=where) from error


class _Careful(tarfile.TarInfo):
    """Refuses header records that tarfile would read into memory whole, however long they say they are."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and not self.isdir() and self.size > LONGEST_HEADER:
            raise Refused("an oversized header", where=str(archive.name or ""), got=f"{self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]


def _kind(entry: tarfile.TarInfo) -> str:
    kinds = {tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link", tarfile.FIFOTYPE: "a pipe"}
    return kinds.get(entry.type, f"tar type {entry.type!r}")


class _Bounded(io.RawIOBase):
    """A decompressing stream that stops when more comes out than the compressed bytes can honestly hold."""

    def __init__(self, raw: IO[bytes], compressed: int, limits: Limits, where: str) -> None:
        self._reader = zstandard.ZstdDecompressor(max_window_size=limits.window).stream_reader(
            raw, read_across_frames=True
        )
        self._most = max(limits.floor, compressed * limits.ratio)
        self._limits, self._where, self._out = limits, where, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """As a file's; raises Refused past the bound."""
        data: bytes = self._reader.read(PIECE if size < 0 else size)
        self._out += len(data)
        if self._out > self._most:
            raise Refused(
                "a decompression bomb", where=self._where, got=f"more than {self._most} bytes out of a small file"
            )
        return data


def _one_frame(frame: bytes, plain: int, path: Path, limits: Limits) -> bytes:
    if plain > limits.window:
        raise Refused("a frame is larger than allowed", where=str(path), got=f"{plain} bytes")
    try:
        said = zstandard.frame_content_size(frame)
        if said not in (plain, -1) or zstandard.get_frame_parameters(frame).window_size > limits.window:
            raise Refused("frame and seek table contradict each other", where=str(path), got=f"{said}, not {plain}")
        data = zstandard.ZstdDecompressor(max_window_size=limits.window).decompress(frame, max_output_size=plain)
    except zstandard.ZstdError as error:
        raise CorruptPayload(f"a damaged frame ({error})", where=str(path)) from error
    if len(data) != plain:
        raise CorruptPayload("a frame has another size", where=str(path), expected=str(plain), got=str(len(data)))
    return data


def find_folder(path: Path, name: str) -> str:
    """The one folder of the index that is called `name`, or ends in `/name`.

    Raises:
        UserError: none is, or several are (they are listed).
    """
    folders = [one.folder for one in read_index(path)]
    if name in folders:
        return name
    fitting = [folder for folder in folders if folder.rpartition("/")[2] == name or folder.endswith("/" + name)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        sample = ", ".join(folders[:5])
        raise UserError("no such episode", where=str(path), got=name, expected=f"one of {len(folders)}: {sample}, ...")
    raise UserError(
        f"{len(fitting)} episodes are called so",
        where=str(path),
        got=name,
        expected=f"one of: {', '.join(fitting[:12])}",
    )
