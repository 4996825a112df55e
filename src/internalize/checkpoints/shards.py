"""Rows of the tensors of a torch_dist checkpoint, read in blocks, at any parallel shape it was saved with.

Invariant: the rows are bit for bit those of Megatron's own loader; memory holds the block that is asked for, and for
chunks cut along columns one block more. A row that no chunk covers is an error, never a silent zero.

Reading takes no lock and moves no file position, so threads may share one reader.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from internalize.checkpoints.blobs import Blob, find_tensor
from internalize.checkpoints.handles import Handles, damaged
from internalize.checkpoints.index import Chunk, Place, TensorEntry
from internalize.checkpoints.torch_dist import METADATA, TorchDist
from internalize.errors import MissingPayload


class ShardRows:
    """An opened checkpoint folder. Use as a context manager.

    Raises:
        MissingPayload: the folder or one of its files is absent.
        CorruptPayload: a file cannot be parsed or is shorter than its index says.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with TorchDist(folder) as opened:  # its checks: every part is there and long enough
            self.index = opened.index
        self._handles = Handles(folder)
        self._blobs: dict[Place, Blob] = {}

    def __enter__(self) -> ShardRows:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handles.close()

    def entry(self, name: str) -> TensorEntry:
        """Type, shape and chunks of a tensor.

        Raises:
            MissingPayload: there is none of that name.
        """
        found = self.index.tensors.get(name)
        if found is None:
            raise MissingPayload(
                f"the checkpoint has no tensor {name}",
                where=str(self.folder),
                expected=f"one of the {len(self.index.tensors)} tensors of its {METADATA}",
                fix="use the model config that belongs to this checkpoint",
            )
        return found

    def read_rows(self, name: str, layer: int | None, start: int, out: Tensor) -> None:
        """Fills ``out`` with rows ``start``, ``start + 1``, ... of a tensor, or of one layer of a stacked tensor.

        Args:
            out: [rows, numbers a row] of the stored type, contiguous.

        Raises:
            MissingPayload: no such tensor.
            CorruptPayload: a chunk cannot be decoded, or a row lies in no chunk.
        """
        entry = self.entry(name)
        filled = 0
        for chunk in self._chunks(entry, layer, start, start + out.shape[0]):
            filled += self._copy(name, chunk, layer, start, out)
        if filled != out.numel():
            raise damaged(
                self.folder / METADATA,
                f"chunks that cover rows {start} to {start + out.shape[0] - 1} of {name} once",
                f"{filled} of {out.numel()} numbers",
            )

    @staticmethod
    def _chunks(entry: TensorEntry, layer: int | None, start: int, end: int) -> Iterator[Chunk]:
        axis = 0 if layer is None else 1
        for chunk in entry.chunks:
            if layer is not None and not chunk.offsets[0] <= layer < chunk.offsets[0] + chunk.sizes[0]:
                continue
            if chunk.offsets[axis] < end and start < chunk.offsets[axis] + chunk.sizes[axis]:
                yield chunk

    def _copy(self, name: str, chunk: Chunk, layer: int | None, start: int, out: Tensor) -> int:
        """Copies what a chunk has of the wanted rows; returns how many numbers."""
        place = self.index.places.get((name, tuple(chunk.offsets)))
        if place is None:
            raise damaged(self.folder / METADATA, f"a place of {name} at {list(chunk.offsets)}", "none")
        axis = 0 if layer is None else 1
        high, wide = chunk.sizes[axis], chunk.sizes[axis + 1 :].numel()
        first = max(start, chunk.offsets[axis])
        last = min(start + out.shape[0], chunk.offsets[axis] + high)
        column = chunk.offsets[axis + 1] if len(chunk.sizes) > axis + 1 else 0
        blob = self._blob(name, chunk, place)
        above = (first - chunk.offsets[axis]) + (0 if layer is None else (layer - chunk.offsets[0]) * high)
        target = out[first - start : last - start, column : column + wide]
        if not blob.row_major:
            target.copy_(self._whole(name, place).reshape(-1, wide)[above : above + last - first])
        elif wide == out.shape[1]:
            self._handles.fill(place.file, blob.start + above * wide * out.element_size(), target, name)
        else:
            part = torch.empty(target.shape, dtype=out.dtype)
            self._handles.fill(place.file, blob.start + above * wide * out.element_size(), part, name)
            target.copy_(part)
        return target.numel()

    def _blob(self, name: str, chunk: Chunk, place: Place) -> Blob:
        blob = self._blobs.get(place)
        if blob is None:
            try:
                blob = find_tensor(self._handles.of(place.file), place.offset, place.length)
            except ValueError as error:
                raise damaged(
                    self.folder / place.file, f"a tensor of {name} at byte {place.offset}", str(error)
                ) from error
            if blob.size != tuple(chunk.sizes) or blob.dtype != self.index.tensors[name].dtype:
                raise damaged(
                    self.folder / place.file,
                    f"{name} chunk of {self.index.tensors[name].dtype} {list(chunk.sizes)}",
                    f"{blob.dtype} {list(blob.size)}",
                )
            self._blobs[place] = blob
        return blob

    def _whole(self, name: str, place: Place) -> Tensor:
        data = os.pread(self._handles.of(place.file), place.length, place.offset)
        loaded: Tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        return loaded
