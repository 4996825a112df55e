"""The `.metadata` index of a torch_dist checkpoint: which chunk of which tensor lies at which byte of which file.

Invariant: reading an index runs nothing that it names. The file is a pickle of records of
``torch.distributed.checkpoint``; each becomes an inert record of the same name here, so no class of that package is
called or even imported (importing it costs 0.7 CPU s, a third of what an eval process needs to start), and any other
name is refused.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch


@dataclass(frozen=True)
class Chunk:
    """A hyper-rectangle of a tensor: where it starts and how large it is, an entry a dimension."""

    offsets: torch.Size
    sizes: torch.Size


@dataclass(frozen=True)
class Place:
    """Bytes of a shard file that hold one chunk as a ``torch.save`` blob."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of the checkpoint.

    Attributes:
        dtype: as stored.
        size: global shape.
        chunks: cover the tensor.
    """

    dtype: torch.dtype
    size: torch.Size
    chunks: list[Chunk]


@dataclass(frozen=True)
class Index:
    """The index of one checkpoint folder.

    Attributes:
        tensors: name -> entry.
        places: (tensor name, offsets of the chunk) -> place; a pickled object has one under no offsets.
    """

    tensors: Mapping[str, TensorEntry]
    places: Mapping[tuple[str, tuple[int, ...]], Place]


def read_index(path: Path) -> Index:
    """Reads a `.metadata` file.

    Raises:
        ValueError: it is no such index, names a class that an index has no use for, or is cut short.
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as handle:
            metadata = _Unpickler(handle).load()
        entries = metadata.state_dict_metadata.items()
        tensors = {name: _entry(entry) for name, entry in entries if isinstance(entry, _TensorStorageMetadata)}
        places = {
            (key.fqn, tuple(key.offset or ())): Place(str(info.relative_path), int(info.offset), int(info.length))
            for key, info in metadata.storage_data.items()
        }
        return Index(tensors, places)
    except _MALFORMED as error:
        raise ValueError(str(error) or type(error).__name__) from error


class _Record:
    """Stands in for a class that an index names: keeps what was pickled, runs nothing."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)
        else:
            self.values = state


class _TensorStorageMetadata(_Record):
    pass


class _MetadataIndex(_Record):
    """A key of the storage table. Equal under name and offset; its third field is a hint."""

    fqn: str
    offset: torch.Size | None = None

    def __hash__(self) -> int:
        return hash((self.fqn, self.offset))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MetadataIndex) and (self.fqn, self.offset) == (other.fqn, other.offset)


_STORAGE_TYPES = ("Size", "float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")
_CHECKPOINT = "torch.distributed.checkpoint"
_CLASSES: dict[tuple[str, str], Any] = {
    **{
        (f"{_CHECKPOINT}.{module}", name): _Record
        for module, names in {
            "metadata": (
                "Metadata",
                "BytesStorageMetadata",
                "ChunkStorageMetadata",
                "TensorProperties",
                "StorageMeta",
                "_MEM_FORMAT_ENCODING",
            ),
            "filesystem": ("_StorageInfo", "_StoragePrefix"),
            # Megatron's stock strategy leaves its write plans and the folder's name in the index.
            "planner": ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData", "BytesIOWriteData"),
        }.items()
        for name in names
    },
    (f"{_CHECKPOINT}.metadata", "TensorStorageMetadata"): _TensorStorageMetadata,
    (f"{_CHECKPOINT}.metadata", "MetadataIndex"): _MetadataIndex,
    ("pathlib", "PosixPath"): PurePosixPath,
    ("pathlib", "PurePosixPath"): PurePosixPath,
    ("torch", "strided"): torch.strided,
    ("torch.serialization", "_get_layout"): _Record,
    **{("torch", name): getattr(torch, name) for name in _STORAGE_TYPES},
}
_MALFORMED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ImportError,
)


class _Unpickler(pickle.Unpickler):
    """Knows the names that an index may hold and no other."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"names {module}.{name}, which an index of tensors has no use for") from None


def _entry(entry: Any) -> TensorEntry:
    dtype, *_ = entry.properties.values
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"a tensor of type {dtype!r}")
    chunks = [Chunk(torch.Size(chunk.offsets), torch.Size(chunk.sizes)) for chunk in entry.chunks]
    return TensorEntry(dtype, torch.Size(entry.size), chunks)
