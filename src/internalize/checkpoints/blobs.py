"""Where the numbers of a ``torch.save``d tensor lie inside a file, without loading it.

Invariant: looking runs nothing that the blob contains. A blob is a zip archive whose entries are stored, not packed:
``data.pkl`` says type and shape (read by an unpickler that knows the few names a plain tensor needs and builds inert
records), ``data/0`` is the raw numbers. So any rows of a tensor can be read straight into a buffer.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import torch

_STORED_HEADER = 30  # bytes of a zip entry's local header before its name and extra field
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


@dataclass(frozen=True)
class _Storage:
    dtype: torch.dtype
    key: str


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    size: torch.Size
    stride: tuple[int, ...]


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
        kind, dtype, key, *_ = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise pickle.UnpicklingError(f"refers to {kind!r}")
        return _Storage(dtype, str(key))


def _is_row_major(size: torch.Size, stride: tuple[int, ...]) -> bool:
    step = 1
    for length, given in zip(reversed(size), reversed(stride), strict=True):
        if length > 1 and given != step:
            return False
        step *= max(1, length)
    return True


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
