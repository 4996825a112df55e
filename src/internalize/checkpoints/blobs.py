"""``torch.save`` blobs of one tensor inside a file: where the numbers lie, without loading them, and writing them piece
by piece.

Invariant: looking runs nothing that the blob contains, and neither way ever holds a tensor. A blob is a zip archive
whose entries are stored, not packed: ``data.pkl`` says type and shape (read by an unpickler that knows the few names a
plain tensor needs and builds inert records), ``data/0`` is the raw numbers. So any rows of a tensor can be read
straight into a buffer.

``torch.save`` itself is not used for writing: it wants the tensor whole, and takes its checksum (a third of the work)
with the interpreter locked.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch._utils import _rebuild_tensor_v2

_STORED_HEADER = 30  # bytes of a zip entry's local header before its name and extra field
_LARGE_FIELD = 20  # bytes of the extra field that an entry of 2 GiB and more gets
_ALIGNMENT = 64
"""Numbers begin at a multiple of it in the blob, as torch's own do."""
_BORN = (1980, 1, 1, 0, 0, 0)
"""Time of every entry: bytes depend on the content alone."""
_TYPES = {
    "FloatStorage": torch.float32,
    "BFloat16Storage": torch.bfloat16,
    "HalfStorage": torch.float16,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


@dataclass(frozen=True)
class Blob:
    """A tensor inside a file.

    Attributes:
        dtype: of its numbers.
        size: its shape.
        start: byte of the file at which its first number lies.
        row_major: whether the numbers follow each other in the order of the shape.
    """

    dtype: torch.dtype
    size: tuple[int, ...]
    start: int
    row_major: bool


def find_tensor(handle: int, offset: int, length: int) -> Blob:
    """The tensor whose ``torch.save`` blob is ``length`` bytes from ``offset`` of an open file.

    Args:
        handle: file descriptor, open for reading; its position is neither used nor moved.

    Raises:
        ValueError: there is no such blob, or it holds something else than a plain tensor.
    """
    try:
        with zipfile.ZipFile(_Window(handle, offset, length)) as archive:
            entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
            tensor = _TensorUnpickler(io.BytesIO(archive.read(entries["data.pkl"]))).load()
            if not isinstance(tensor, _Tensor):
                raise ValueError(f"holds {type(tensor).__name__}, not a tensor")
            order = archive.read(entries["byteorder"]) if "byteorder" in entries else b"little"
            numbers = entries[f"data/{tensor.storage.key}"]
    except (zipfile.BadZipFile, pickle.UnpicklingError, KeyError, EOFError, TypeError, IndexError, OSError) as error:
        raise ValueError(f"no torch.save blob of a tensor ({error})") from error
    if order != b"little" or numbers.compress_type != zipfile.ZIP_STORED:
        raise ValueError("the numbers are packed or big-endian")
    header = os.pread(handle, _STORED_HEADER, offset + numbers.header_offset)
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    start = numbers.header_offset + _STORED_HEADER + names
    width, rows = tensor.storage.dtype.itemsize, tensor.size.numel()
    if start + numbers.file_size > length or (tensor.offset + rows) * width > numbers.file_size:
        raise ValueError(f"{rows} numbers, but {numbers.file_size} bytes")
    return Blob(
        tensor.storage.dtype,
        tuple(tensor.size),
        offset + start + tensor.offset * width,
        _is_row_major(tensor.size, tensor.stride),
    )


def check_sum(handle: int, offset: int, length: int) -> None:
    """Reads a blob to its end and compares its checksums.

    Raises:
        ValueError: a checksum differs, or there is no blob.
    """
    try:
        with zipfile.ZipFile(_Window(handle, offset, length)) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from error
    if broken is not None:
        raise ValueError(f"checksum of {broken} differs")


def write_tensor(handle: BinaryIO, dtype: torch.dtype, size: Sequence[int], parts: Iterable[memoryview]) -> None:
    """Writes a contiguous tensor as a blob that ``torch.load`` reads, at the end of ``handle``.

    Args:
        parts: its numbers, in order; each is written before the next is asked for.
    """
    shape = torch.Size(size)
    stride = torch.empty(shape, device="meta").stride()
    pickled = io.BytesIO()
    _TensorPickler(pickled, protocol=2).dump(_Tensor(_Storage(dtype, "0", shape.numel()), 0, shape, stride))
    sink = _Forward(handle)
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in (("data.pkl", pickled.getvalue()), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}", _BORN), data)
        numbers = zipfile.ZipInfo("archive/data/0", _BORN)
        numbers.file_size = shape.numel() * dtype.itemsize
        large = numbers.file_size >= zipfile.ZIP64_LIMIT
        start = sink.written + _STORED_HEADER + len(numbers.filename) + 4 + (_LARGE_FIELD if large else 0)
        padding = -start % _ALIGNMENT
        numbers.extra = b"FB" + padding.to_bytes(2, "little") + bytes(padding)
        with archive.open(numbers, "w", force_zip64=large) as out:
            for part in parts:
                out.write(part)


@dataclass(frozen=True)
class _Storage:
    dtype: torch.dtype
    key: str
    numbers: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    size: torch.Size
    stride: tuple[int, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """As a tensor without hooks that needs no gradient."""
        return _rebuild_tensor_v2, (self.storage, self.offset, tuple(self.size), self.stride, False, OrderedDict())


def _tensor(storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without storage")
    return _Tensor(storage, int(offset), torch.Size(size), tuple(stride))


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"names {module}.{name}, which a plain tensor has no use for")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, numbers = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise pickle.UnpicklingError(f"refers to {kind!r}")
        return _Storage(dtype, str(key), int(numbers))


class _TensorPickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        if not isinstance(obj, _Storage):
            return None
        kind = next(name for name, dtype in _TYPES.items() if dtype == obj.dtype)
        return "storage", getattr(torch, kind), obj.key, "cpu", obj.numbers


def _is_row_major(size: torch.Size, stride: tuple[int, ...]) -> bool:
    step = 1
    for length, given in zip(reversed(size), reversed(stride), strict=True):
        if length > 1 and given != step:
            return False
        step *= max(1, length)
    return True


class _Forward:
    """A file that is only written on: ``zipfile`` then counts from here and never goes back."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.written = 0

    def write(self, data: bytes) -> int:
        """At the end."""
        count = self._handle.write(data)
        self.written += count
        return count

    def flush(self) -> None:
        """Whoever owns the file does."""

    def close(self) -> None:
        """Whoever owns the file does."""


class _Window(io.RawIOBase):
    """A range of a file as a file of its own."""

    def __init__(self, handle: int, offset: int, length: int) -> None:
        self._handle, self._offset, self._length, self._at = handle, offset, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._length - self._at))
        data = os.pread(self._handle, wanted, self._offset + self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
