"""Safetensors files by their bytes: headers, rows, and files whose every byte has its place before it is written.

Invariant: a header that does not describe its file exactly (gaps, overlaps, a file too short) is refused; a file that
is written here has its header first and each tensor at the place that the header says, whoever writes it when.

The format: 8 bytes little-endian length of the header, the header (JSON: name -> type, shape, first and last byte
behind the header), the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from internalize.checkpoints.handles import Handles
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import read_json

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
MAX_HEADER = 100_000_000
"""The format's own limit."""


@dataclass(frozen=True)
class Slot:
    """A tensor's place in a file.

    Attributes:
        file: name of the file.
        start: its first byte in the file.
    """

    file: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def bytes(self) -> int:
        """Size of its numbers."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


class ModelRows:
    """The tensors of an HF model folder, one file or several with an index. Use as a context manager.

    Raises:
        MissingPayload: the folder has no weights, or a file of the index is absent.
        CorruptPayload: a header is damaged, a file is cut short, or index and files disagree.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slots: dict[str, Slot] = {}
        listed: dict[str, str] | None = None
        if (folder / INDEX).is_file():
            listed = dict(read_json(folder / INDEX).get("weight_map", {}))
        for file in sorted(set(listed.values())) if listed is not None else [SINGLE]:
            self.slots |= read_header(folder / file)
        if listed is not None and listed != {name: slot.file for name, slot in self.slots.items()}:
            wrong = sorted({name for name in {*listed, *self.slots} if listed.get(name) != _file(self.slots.get(name))})
            raise CorruptPayload(
                "index and weight files disagree",
                where=str(folder / INDEX),
                expected="each tensor in the file that the index names",
                got=", ".join(wrong[:3]) + (" ..." if len(wrong) > 3 else ""),
                fix="download or convert the model again",
            )
        self._handles = Handles(folder)

    def __enter__(self) -> ModelRows:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handles.close()

    def read_rows(self, name: str, start: int, out: Tensor) -> None:
        """Fills ``out`` [rows, numbers a row] of the stored type with rows from ``start`` on."""
        slot = self.slots[name]
        at = slot.start + start * out.shape[1] * out.element_size()
        self._handles.fill(slot.file, at, out, name)


def read_header(path: Path) -> dict[str, Slot]:
    """The tensors of one file.

    Raises:
        MissingPayload: there is no such file.
        CorruptPayload: it is not a safetensors file, or not a whole one.
    """
    if not path.is_file():
        raise MissingPayload(
            "the model folder lacks its weights",
            where=str(path),
            expected=f"{SINGLE}, or the files that {INDEX} names",
            got="no such file" if path.parent.is_dir() else "no such folder",
        )
    size = path.stat().st_size
    try:
        with path.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if not 0 < length <= min(MAX_HEADER, size - 8):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            header = json.loads(handle.read(length))
        slots: dict[str, Slot] = {}
        end = 0
        rows = {name: row for name, row in header.items() if name != "__metadata__"}
        for name, row in sorted(rows.items(), key=lambda item: tuple(item[1]["data_offsets"])):
            first, last = row["data_offsets"]
            slot = Slot(path.name, TYPES[row["dtype"]], tuple(row["shape"]), 8 + length + first)
            if first != end or last - first != slot.bytes:
                raise ValueError(f"{name} does not lie where its shape and its neighbours say")
            slots[name] = slot
            end = last
        if 8 + length + end != size:
            raise ValueError(f"{8 + length + end} bytes by its header, {size} in fact")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptPayload(
            "not a whole safetensors file",
            where=str(path),
            expected="a header that describes the file",
            got=str(error),
            fix="download or convert the model again",
        ) from error
    return slots


def header_for(tensors: Iterable[tuple[str, torch.dtype, tuple[int, ...]]], file: str) -> tuple[bytes, dict[str, Slot]]:
    """The first bytes of a file that will hold these tensors in this order, and their places."""
    rows: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    relative: dict[str, Slot] = {}
    for name, dtype, shape in tensors:
        slot = relative[name] = Slot(file, dtype, shape, at)
        rows[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [at, at + slot.bytes]}
        at += slot.bytes
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers start at a multiple of 8
    head = len(text).to_bytes(8, "little") + text
    return head, {name: Slot(file, s.dtype, s.shape, len(head) + s.start) for name, s in relative.items()}


def index_of(slots: Mapping[str, Slot]) -> dict[str, object]:
    """Content of the index file of a sharded model."""
    return {
        "metadata": {"total_size": sum(slot.bytes for slot in slots.values())},
        "weight_map": {name: slot.file for name, slot in sorted(slots.items())},
    }


def _file(slot: Slot | None) -> str | None:
    return slot.file if slot is not None else None
