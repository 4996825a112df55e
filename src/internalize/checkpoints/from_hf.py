"""HF model folder -> torch_dist: a checkpoint that Megatron loads at any parallel shape, written without Megatron.

Invariant: ``metadata.json`` comes last, so an interrupted conversion never looks complete; started again with the same
source and settings it keeps the shard files that were whole. Every tensor is bit for bit the model folder's (or its
cast to ``dtype``), fused as ``hf_names`` says. Memory holds one Megatron tensor, or several small ones.

The layout is the one that ``torch.distributed.checkpoint`` writes: blobs of ``torch.save`` in ``__0_{n}.distcp``, one
a tensor and layer, and an index of its own record classes. Its writer is not used because it wants all tensors in
memory at once; a test loads the result with Megatron and trains on it. Besides the weights there is what Megatron's
layers ask for when they load: an empty ``_extra_state`` for each linear module, and the state of the random generator.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from internalize.checkpoints import hf_names
from internalize.checkpoints.hf_names import LAYERS, Entry, TensorMismatchError, entries
from internalize.checkpoints.parallel import Budget, each
from internalize.checkpoints.resumable import finish, start
from internalize.checkpoints.runs import row_numbers, runs
from internalize.checkpoints.safetensors import ModelRows
from internalize.checkpoints.to_hf import Dtype
from internalize.checkpoints.torch_dist import COMMON, CONFIG, METADATA
from internalize.files import digest, disk_error, fsync_dir, read_json, write_bytes, write_json

FILE_BYTES = 4 << 30
WRITERS = 2
HELD = 64 << 20
"""Bytes of small tensors that writers may hold at once."""
LINEAR = ("self_attention.linear_proj", "self_attention.linear_qkv", "mlp.linear_fc1", "mlp.linear_fc2")
VERSION = 3.0
Place = tuple[str, list[int] | None, int, int]
"""Key, offsets (None of an object), first byte and bytes of a blob."""


@dataclass(frozen=True)
class Item:
    """A blob to write.

    Attributes:
        key: name in the checkpoint.
        layer: of a stacked tensor.
        bytes: held while it is written.
        make: makes the value.
    """

    key: str
    layer: int | None
    bytes: int
    make: Callable[[], Any]


def write_checkpoint(
    model: Path,
    folder: Path,
    iteration: int,
    args: Mapping[str, Any],
    dtype: Dtype = "keep",
    file_bytes: int = FILE_BYTES,
    writers: int = WRITERS,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Writes the weights of an HF model folder as an ``iter_*`` folder; no moments.

    Args:
        model: folder with config.json and safetensors.
        folder: may hold files of an interrupted conversion of the same source.
        args: what ``common.pt`` says of the run; plain values.
        dtype: type of the stored numbers.
        file_bytes: size from which on another shard file is begun.

    Raises:
        MissingPayload, CorruptPayload: the model folder is incomplete or damaged.
        TensorMismatchError: its tensors are not those of its config.json.
        UserError: the file system refused a write.
    """
    config = read_json(model / "config.json")
    with ModelRows(model) as source:
        check_model(source, config)
        files = _files(source, config, file_bytes)
        start(folder, _identity(model, source, config, dtype, file_bytes), ("__0_*.distcp", "places-*.json"))
        budget = Budget(HELD)

        def write(number: int) -> None:
            if number < len(files):
                items = [_fused_item(source, config, entry, dtype) for entry in files[number]]
            else:
                items = _objects(config, int(args.get("seed", 0)))
            _write_file(folder, number, items, budget)
            progress(f"__0_{number}.distcp written")

        numbers = range(len(files) + 1)
        todo = [n for n in numbers if not ((folder / _places(n)).exists() and (folder / f"__0_{n}.distcp").exists())]
        each(write, todo, writers)
        types = {e.stored: _type(source, e, dtype) for e in entries(config)}
    places = {f"__0_{n}.distcp": read_json(folder / _places(n)) for n in numbers}
    write_bytes(folder / METADATA, _index(places, config, types))
    common = {"args": dict(args), "checkpoint_version": VERSION, "iteration": iteration}
    write_bytes(folder / COMMON, _saved(common))
    for n in numbers:
        (folder / _places(n)).unlink()
    finish(folder)
    said = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    write_bytes(folder / CONFIG, json.dumps(said | {"common_backend": "torch", "common_backend_version": 1}).encode())


def check_model(source: ModelRows, config: Mapping[str, Any]) -> None:
    """Holds the tensors of a model folder against its config.

    Raises:
        TensorMismatchError: names what is missing, unexpected, of another shape, or fused of several types.
    """
    hf_names.check_hf(cast("Mapping[str, Tensor]", source.slots), config, where=str(source.folder))
    for entry in entries(config):
        types = {str(source.slots[name].dtype) for name in entry.hf}
        if len(types) > 1:
            raise TensorMismatchError(
                "tensors that Megatron keeps in one have several types",
                where=f"{source.folder}: {', '.join(entry.hf)}",
                expected="one type",
                got=", ".join(sorted(types)),
                fix="convert the model to one type first",
            )


def _type(source: ModelRows, entry: Entry, dtype: Dtype) -> torch.dtype:
    return source.slots[entry.hf[0]].dtype if dtype == "keep" else cast("torch.dtype", getattr(torch, dtype))


def _files(source: ModelRows, config: Mapping[str, Any], file_bytes: int) -> list[list[Entry]]:
    """The entries of each shard file."""
    files: list[list[Entry]] = [[]]
    size = 0
    for entry in entries(config):
        if files[-1] and size >= file_bytes:
            files.append([])
            size = 0
        files[-1].append(entry)
        size += sum(source.slots[name].bytes for name in entry.hf)
    return files


def _fused_item(source: ModelRows, config: Mapping[str, Any], entry: Entry, dtype: Dtype) -> Item:
    size = sum(source.slots[name].bytes for name in entry.hf)
    stored, kept = source.slots[entry.hf[0]].dtype, _type(source, entry, dtype)
    held = size if kept == stored else size + size * kept.itemsize // stored.itemsize
    return Item(entry.stored, entry.layer, held, lambda: _fused(source, config, entry, dtype))


def _fused(source: ModelRows, config: Mapping[str, Any], entry: Entry, dtype: Dtype) -> Tensor:
    """One Megatron tensor, with a leading dimension of one layer where it is stacked."""
    stored = source.slots[entry.hf[0]].dtype
    width = row_numbers(entry.shapes[0])
    height = sum(shape[0] for shape in entry.shapes)
    # memory of its own, which goes back when the tensor does; the allocator would keep some of every thread's
    rows = torch.frombuffer(mmap(-1, height * width * stored.itemsize), dtype=stored).view(height, width)
    for run in runs(entry, config):
        source.read_rows(entry.hf[run.part], run.row, rows[run.at : run.at + run.rows])
    shape = [*([1] if entry.layer is not None else []), height, *entry.shapes[0][1:]]
    return rows.to(_type(source, entry, dtype)).reshape(shape)


def _objects(config: Mapping[str, Any], seed: int) -> list[Item]:
    """What Megatron loads besides tensors."""
    layers = config["num_hidden_layers"]
    names = [f"{LAYERS}{part}._extra_state/shard_{i}_{layers}" for i in range(layers) for part in LINEAR]
    state = {"torch_rng_state": torch.Generator().manual_seed(seed).get_state()}
    empty = [Item(name, None, 0, lambda: [None]) for name in names]
    return [*empty, Item("rng_state/shard_0.0_1.1", None, 0, lambda: [state])]


def _write_file(folder: Path, number: int, items: Sequence[Item], budget: Budget) -> None:
    path = folder / f"__0_{number}.distcp"
    temporary = path.with_name(f".{path.name}.tmp")
    places: list[Place] = []
    try:
        with temporary.open("wb") as handle:
            for item in items:
                first = handle.tell()
                with budget.hold(item.bytes):
                    value = item.make()
                    torch.save(value, handle)
                    offsets = [item.layer or 0, *[0] * (value.dim() - 1)] if isinstance(value, Tensor) else None
                    del value
                places.append((item.key, offsets, first, handle.tell() - first))
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        fsync_dir(folder)
    except OSError as error:
        raise disk_error(error, path) from error
    write_json(folder / _places(number), places)


def _index(places: Mapping[str, list[Place]], config: Mapping[str, Any], types: Mapping[str, torch.dtype]) -> bytes:
    """The ``.metadata`` of the blobs."""
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        BytesStorageMetadata,
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        StorageMeta,
        TensorProperties,
        TensorStorageMetadata,
    )

    metadata = Metadata({}, storage_data={}, storage_meta=StorageMeta())
    for entry in entries(config):
        height = sum(shape[0] for shape in entry.shapes)
        shape = torch.Size([height, *entry.shapes[0][1:]])
        full = torch.Size([config["num_hidden_layers"], *shape]) if entry.layer is not None else shape
        kept = metadata.state_dict_metadata.setdefault(
            entry.stored, TensorStorageMetadata(TensorProperties(dtype=types[entry.stored]), full, [])
        )
        offsets = torch.Size([*([entry.layer] if entry.layer is not None else []), *[0] * len(shape)])
        sizes = torch.Size([1, *shape]) if entry.layer is not None else shape
        assert isinstance(kept, TensorStorageMetadata)
        kept.chunks.append(ChunkStorageMetadata(offsets, sizes))
    for file, blobs in places.items():
        for key, blob_offsets, first, length in blobs:
            where = torch.Size(blob_offsets) if blob_offsets is not None else None
            metadata.storage_data[MetadataIndex(key, where)] = _StorageInfo(file, first, length)
            if blob_offsets is None:
                metadata.state_dict_metadata[key] = BytesStorageMetadata()
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.fast = True  # no memo: equal values give equal bytes
    pickler.dump(metadata)
    return buffer.getvalue()


def _identity(model: Path, source: ModelRows, config: Mapping[str, Any], dtype: str, file_bytes: int) -> str:
    files = sorted({slot.file for slot in source.slots.values()})
    stats = [[name, (model / name).stat().st_size, (model / name).stat().st_mtime_ns] for name in files]
    return digest({"source": stats, "config": dict(config), "dtype": dtype, "file_bytes": file_bytes})


def _places(number: int) -> str:
    return f"places-{number}.json"


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
