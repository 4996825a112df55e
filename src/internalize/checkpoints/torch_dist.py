"""Reader of Megatron's torch_dist checkpoints that needs torch alone.

Invariant: a tensor read here is bit for bit the one that Megatron's own loader returns, and reading executes
nothing that the files contain: ``.metadata`` is a pickle and opened as inert records (``index``); tensors are loaded
with ``weights_only=True``.

Layout of one iteration's folder::

    .metadata            tensor name -> chunks (offsets, sizes); chunk -> file, offset, length
    metadata.json        {"sharded_backend": "torch_dist", ...}; written last, so none means incomplete
    common.pt            everything that is not sharded: args, iteration, optimizer settings
    __{rank}_{n}.distcp  concatenated torch.save blobs, one a chunk
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from internalize.checkpoints import hf_names
from internalize.checkpoints.handles import FIX, damaged
from internalize.checkpoints.index import Index, read_index
from internalize.checkpoints.tombstone import refuse_pruned
from internalize.errors import MissingPayload

METADATA, CONFIG, COMMON = ".metadata", "metadata.json", "common.pt"
VERSION = 3.0
"""Megatron's name for layer names as in megatron-core."""


class TorchDist:
    """An opened checkpoint folder. Use as a context manager; it keeps shard files open.

    Raises:
        MissingPayload: the folder or one of its files is absent.
        CorruptPayload: a file cannot be parsed, names a class it should not, or is shorter than its index
            says.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}
        for name in (CONFIG, METADATA, COMMON):
            _require(folder / name)
        _check_backend(folder / CONFIG)
        self.index = _read_index(folder / METADATA)
        self._check_files()

    def __enter__(self) -> TorchDist:
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._files.values():
            handle.close()
        self._files.clear()

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name -> global shape of every tensor; per-layer tensors are stacked, layers first."""
        return {name: tuple(entry.size) for name, entry in self.index.tensors.items()}

    def read(self, name: str, layer: int | None = None) -> Tensor:
        """The whole tensor ``name``, or slice ``layer`` of a stacked one; reads only the chunks that it
        needs.

        Raises:
            MissingPayload: the checkpoint has no such tensor or layer.
            CorruptPayload: a chunk cannot be decoded.
        """
        entry = self.index.tensors.get(name)
        if entry is None or (layer is not None and not 0 <= layer < entry.size[0]):
            raise MissingPayload(
                f"the checkpoint has no tensor {name}" + ("" if layer is None else f" for layer {layer}"),
                where=str(self.folder),
                expected=f"one of {len(self.index.tensors)} tensors of its {METADATA}",
                fix="use the model config that belongs to this checkpoint",
            )
        drop = 0 if layer is None else 1
        out = torch.empty(entry.size[drop:], dtype=entry.dtype)
        for chunk in entry.chunks:
            first, last = (0, 0) if layer is None else (chunk.offsets[0], chunk.offsets[0] + chunk.sizes[0])
            if layer is not None and not first <= layer < last:
                continue
            data = self._chunk(name, chunk.offsets, chunk.sizes)
            window = zip(chunk.offsets[drop:], chunk.sizes[drop:], strict=True)
            out[tuple(slice(o, o + n) for o, n in window)] = data if layer is None else data[layer - first]
        return out

    def _chunk(self, name: str, offsets: torch.Size, sizes: torch.Size) -> Tensor:
        place = self.index.places.get((name, tuple(offsets)))
        if place is None:
            raise damaged(self.folder / METADATA, f"a place of {name} at {list(offsets)}", "none")
        path = self.folder / place.file
        handle = self._files.get(place.file)
        if handle is None:
            handle = self._files[place.file] = path.open("rb")
        handle.seek(place.offset)
        try:
            data = torch.load(io.BytesIO(handle.read(place.length)), map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
            raise damaged(path, f"a tensor of {name} at byte {place.offset}", str(error)) from error
        if not isinstance(data, Tensor) or data.shape != sizes:
            raise damaged(path, f"{name} chunk of shape {list(sizes)}", f"{getattr(data, 'shape', type(data))}")
        return data

    def _check_files(self) -> None:
        ends: dict[str, int] = {}
        for place in self.index.places.values():
            ends[place.file] = max(ends.get(place.file, 0), place.offset + place.length)
        for name, end in ends.items():
            _require(self.folder / name)
            size = (self.folder / name).stat().st_size
            if size < end:
                raise damaged(self.folder / name, f"at least {end} bytes", f"{size} bytes")


def read_hf(folder: Path, model_config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The model of a checkpoint under HF names, at any tensor- or pipeline-parallel shape it was saved with.

    Args:
        folder: an ``iter_*`` folder.
        model_config: HF config.json of the model; vocabulary padding beyond ``vocab_size`` is dropped.

    Raises:
        MissingPayload, CorruptPayload: see ``TorchDist``.
        hf_names.TensorMismatchError: the checkpoint holds another model than ``model_config`` describes.
    """
    state: dict[str, Tensor] = {}
    with TorchDist(folder) as checkpoint:
        shapes = checkpoint.tensors()
        for entry in hf_names.entries(model_config):
            if entry.stored not in shapes:
                raise hf_names.TensorMismatchError(
                    f"the checkpoint lacks {entry.stored}",
                    where=str(folder),
                    expected="the model of config.json",
                    fix="use the config.json that belongs to this checkpoint",
                )
            layers = shapes[entry.stored][0]
            if entry.layer is not None and layers != model_config["num_hidden_layers"]:
                raise hf_names.TensorMismatchError(
                    "the checkpoint has another number of layers",
                    where=str(folder),
                    expected=f"{model_config['num_hidden_layers']}",
                    got=f"{layers}",
                )
            tensor = checkpoint.read(entry.stored, entry.layer)
            if entry.layer is None and tensor.dim() == 2:
                tensor = tensor[: model_config["vocab_size"]]
            if tensor.numel() != sum(torch.Size(shape).numel() for shape in entry.shapes):
                raise hf_names.TensorMismatchError(
                    f"{entry.stored} has another size than the model config says",
                    where=str(folder),
                    expected=" + ".join(
                        f"{name} {list(shape)}" for name, shape in zip(entry.hf, entry.shapes, strict=True)
                    ),
                    got=f"{list(tensor.shape)}",
                )
            for name, part in zip(entry.hf, hf_names.split(entry, tensor, model_config), strict=True):
                state[name] = part.contiguous()
    hf_names.check_hf(state, model_config, where=str(folder))
    return state


def load_common(folder: Path) -> dict[str, Any]:
    """``common.pt`` of a checkpoint folder.

    Raises:
        MissingPayload: it is absent.
        CorruptPayload: it cannot be decoded, or holds anything but tensors and plain values.
    """
    path = folder / COMMON
    _require(path)
    try:
        common = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        raise damaged(path, "a torch.save file of tensors and plain values", str(error).splitlines()[0]) from error
    if not isinstance(common, dict):
        raise damaged(path, "a dict", type(common).__name__)
    return common


def _require(path: Path) -> None:
    if not path.is_file():
        refuse_pruned(path.parent)
        raise MissingPayload(
            "the checkpoint is incomplete" if path.parent.is_dir() else "there is no such checkpoint",
            where=str(path),
            expected=f"a folder with {METADATA}, {CONFIG}, {COMMON} and the __*.distcp files",
            got=f"no {path.name}" if path.parent.is_dir() else "no such folder",
            fix=FIX,
        )


def _check_backend(path: Path) -> None:
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise damaged(path, "JSON", str(error)) from error
    if not isinstance(config, dict) or config.get("sharded_backend") != "torch_dist":
        raise damaged(path, '"sharded_backend": "torch_dist"', json.dumps(config)[:80])


def _read_index(path: Path) -> Index:
    try:
        return read_index(path)
    except ValueError as error:
        raise damaged(path, "an index of tensors", str(error)) from error
