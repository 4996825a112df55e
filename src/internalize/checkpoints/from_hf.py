"""HF model folder -> torch_dist: a checkpoint that Megatron loads at any parallel shape, written without Megatron.

Invariant: ``metadata.json`` comes last, so an interrupted conversion never looks complete; started again with the same
source and settings it keeps the shard files that were whole. Every tensor is bit for bit the model folder's (or its
cast to ``dtype``), fused as ``hf_names`` says. Memory holds one block a writer (`BLOCK`), never a whole tensor.

The layout is the one that ``torch.distributed.checkpoint`` writes: blobs of ``torch.save`` in ``__0_{n}.distcp``, one
a tensor and layer, and an index of its own record classes. Its writer is not used because it wants all tensors in
memory at once; a test loads the result with Megatron and trains on it. Besides the weights there is what Megatron's
layers ask for when they load: an empty ``_extra_state`` for each linear module, and the state of the random generator.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from internalize.checkpoints import hf_names
from internalize.checkpoints.blobs import write_tensor
from internalize.checkpoints.handles import bytes_of
from internalize.checkpoints.hf_names import LAYERS, Entry, TensorMismatchError, entries
from internalize.checkpoints.parallel import each
from internalize.checkpoints.resumable import finish, start
from internalize.checkpoints.runs import blocks, row_numbers, runs
from internalize.checkpoints.safetensors import ModelRows
from internalize.checkpoints.to_hf import BLOCK, Dtype
from internalize.checkpoints.torch_dist import COMMON, CONFIG, METADATA, VERSION
from internalize.files import commit, digest, read_json, write_bytes, write_json

FILE_BYTES = 4 << 30
WRITERS = 2
LINEAR = ("self_attention.linear_proj", "self_attention.linear_qkv", "mlp.linear_fc1", "mlp.linear_fc2")
Place = tuple[str, list[int] | None, int, int]
"""Key, offsets (None of an object), first byte and bytes of a blob."""
Blob = tuple[str, list[int] | None, Callable[[BinaryIO], None]]
"""Key, offsets, and what writes it."""


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

        def write(number: int) -> None:
            if number < len(files):
                blobs = [_fused(source, config, entry, dtype) for entry in files[number]]
            else:
                blobs = _objects(config, int(args.get("seed", 0)))
            _write_file(folder, number, blobs)
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


def _fused(source: ModelRows, config: Mapping[str, Any], entry: Entry, dtype: Dtype) -> Blob:
    """One Megatron tensor, with a leading dimension of one layer where it is stacked."""
    stored, kept = source.slots[entry.hf[0]].dtype, _type(source, entry, dtype)
    width = row_numbers(entry.shapes[0])
    shape = (sum(shape[0] for shape in entry.shapes), *entry.shapes[0][1:])

    def parts() -> Iterator[memoryview]:
        for run in runs(entry, config):
            for block in blocks(run, width * stored.itemsize, BLOCK):
                rows = torch.empty((block.rows, width), dtype=stored)
                source.read_rows(entry.hf[block.part], block.row, rows)
                yield bytes_of(rows.to(kept))

    if entry.layer is None:
        return entry.stored, [0] * len(shape), lambda handle: write_tensor(handle, kept, shape, parts())
    offsets = [entry.layer, *[0] * len(shape)]
    return entry.stored, offsets, lambda handle: write_tensor(handle, kept, (1, *shape), parts())


def _objects(config: Mapping[str, Any], seed: int) -> list[Blob]:
    """What Megatron loads besides tensors."""
    layers = config["num_hidden_layers"]
    names = [f"{LAYERS}{part}._extra_state/shard_{i}_{layers}" for i in range(layers) for part in LINEAR]
    state = {"torch_rng_state": torch.Generator().manual_seed(seed).get_state()}
    empty: list[Blob] = [(name, None, lambda handle: torch.save([None], handle)) for name in names]
    return [*empty, ("rng_state/shard_0.0_1.1", None, lambda handle: torch.save([state], handle))]


def _write_file(folder: Path, number: int, blobs: Sequence[Blob]) -> None:
    places: list[Place] = []

    def write(path: Path) -> None:
        with path.open("wb") as handle:
            for key, offsets, write_blob in blobs:
                first = handle.tell()
                write_blob(handle)
                places.append((key, offsets, first, handle.tell() - first))

    commit(folder / f"__0_{number}.distcp", write)
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
