"""torch_dist -> HF safetensors: any parallel shape in, a sharded model folder's weights out.

Invariant: the folder appears under its name only when every file in it is whole; a killed conversion, started again
with the same source and settings, keeps the files that were whole and writes the rest; the bytes depend on source and
settings alone. Memory holds one block a writer (`BLOCK`), never a whole tensor.

The name table is ``hf_names``; a tensor that the source lacks, has besides or has in another shape is an error that
names it. Megatron is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from internalize.checkpoints.handles import bytes_of
from internalize.checkpoints.hf_names import LAYERS, Entry, TensorMismatchError, entries
from internalize.checkpoints.parallel import each
from internalize.checkpoints.resumable import finish, start
from internalize.checkpoints.runs import blocks, row_numbers, runs
from internalize.checkpoints.safetensors import INDEX, Slot, header_for, index_of, read_header
from internalize.checkpoints.shards import ShardRows
from internalize.errors import CorruptPayload
from internalize.files import commit, digest, sha256_file, write_json

BLOCK = 1 << 20
"""Bytes that a writer reads at once: enough for a disk, little enough to stay in a cache (8 MiB cost 2.5 x the CPU)."""
WRITERS = 4
SHARD_BYTES = 5 << 30
"""Hugging Face's usual size of a weight file."""
OPTIMIZER = "optimizer."
"""Names of moments and master weights start so; they are not converted."""
Dtype = Literal["bfloat16", "float16", "float32", "keep"]


@dataclass(frozen=True)
class Target:
    """One HF tensor to write: part ``part`` of a Megatron tensor."""

    entry: Entry
    part: int
    source: torch.dtype
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """Its HF name."""
        return self.entry.hf[self.part]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.entry.shapes[self.part]

    @property
    def bytes(self) -> int:
        """Its size."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write_weights(
    checkpoint: Path,
    config: Mapping[str, Any],
    folder: Path,
    dtype: Dtype = "bfloat16",
    shard_bytes: int = SHARD_BYTES,
    writers: int = WRITERS,
    progress: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Writes the weights of a checkpoint into ``folder``: ``model-0000i-of-0000n.safetensors`` and their index.

    Args:
        checkpoint: an ``iter_*`` folder.
        config: HF config.json of the model; vocabulary padding beyond ``vocab_size`` is dropped.
        folder: may hold other files, and files of an interrupted conversion of the same source.
        dtype: type of the numbers; ``keep`` leaves them as they are stored.
        shard_bytes: greatest size of a weight file; a larger tensor gets a file of its own.
        writers: files that are written at once.

    Returns:
        Names of the files, the index last.

    Raises:
        MissingPayload, CorruptPayload: the source is incomplete or damaged.
        TensorMismatchError: it holds another model than ``config`` describes.
        UserError: the file system refused a write.
    """
    with ShardRows(checkpoint) as source:
        shards = plan(source, config, dtype, shard_bytes)
        start(folder, _identity(checkpoint, config, dtype, shard_bytes), ("model*.safetensors*",))
        layouts = [
            header_for(((t.name, t.dtype, t.shape) for t in shard), f"model-{i:05d}-of-{len(shards):05d}.safetensors")
            for i, shard in enumerate(shards, start=1)
        ]
        slots = {name: slot for _, table in layouts for name, slot in table.items()}
        names = [next(iter(table.values())).file for _, table in layouts]
        todo = [i for i, (_, table) in enumerate(layouts) if not _is_whole(folder / names[i], table)]
        if len(todo) < len(names):
            progress(f"{len(names) - len(todo)} of {len(names)} weight files are whole already")

        def write(i: int) -> None:
            _write_file(source, config, shards[i], layouts[i], folder / names[i])
            progress(f"{names[i]} written")

        each(write, todo, writers)
    write_json(folder / INDEX, index_of(slots))
    finish(folder)
    return [*names, INDEX]


def plan(source: ShardRows, config: Mapping[str, Any], dtype: Dtype, shard_bytes: int) -> list[list[Target]]:
    """The tensors of each weight file, after the source has been held against the config.

    Raises:
        TensorMismatchError: names the tensors that are missing, unexpected or of another shape.
    """
    check_source(source, config)
    shards: list[list[Target]] = [[]]
    size = 0
    for entry in entries(config):
        stored = source.entry(entry.stored).dtype
        kept = stored if dtype == "keep" else getattr(torch, dtype)
        for part in range(len(entry.hf)):
            target = Target(entry, part, stored, kept)
            if shards[-1] and size + target.bytes > shard_bytes:
                shards.append([])
                size = 0
            shards[-1].append(target)
            size += target.bytes
    return shards


def check_source(source: ShardRows, config: Mapping[str, Any]) -> None:
    """Holds the tensors of a checkpoint against a model config.

    Raises:
        TensorMismatchError: see ``plan``.
    """
    layers = config["num_hidden_layers"]
    wanted: dict[str, tuple[int, ...]] = {}
    for entry in entries(config):
        height = sum(shape[0] for shape in entry.shapes)
        wanted[entry.stored] = (*([layers] if entry.layer is not None else []), height, *entry.shapes[0][1:])
    have = {name: tuple(entry.size) for name, entry in source.index.tensors.items() if not name.startswith(OPTIMIZER)}
    missing = [f"missing {name} {list(shape)}" for name, shape in wanted.items() if name not in have]
    extra = [f"unexpected {name} {list(have[name])}" for name in sorted(set(have) - set(wanted))]
    wrong = [
        f"{name} is {list(have[name])}, not {list(shape)}"
        for name, shape in wanted.items()
        if name in have and not _fits(name, have[name], shape)
    ]
    problems = [*missing, *extra, *wrong]
    if problems:
        raise TensorMismatchError(
            f"{len(problems)} tensors of the checkpoint do not fit the model config",
            where=str(source.folder),
            expected=f"the {len(wanted)} tensors of the model in config.json",
            got="; ".join(problems[:3]) + (" ..." if len(problems) > 3 else ""),
            fix="use the config.json that belongs to this checkpoint",
        )


def _fits(name: str, have: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Equal, but for rows that pad the vocabulary of embedding and output layer."""
    if name.startswith(LAYERS) or len(wanted) != 2 or len(have) != 2:
        return have == wanted
    return have[1:] == wanted[1:] and have[0] >= wanted[0]


def _write_file(
    source: ShardRows,
    config: Mapping[str, Any],
    shard: Sequence[Target],
    layout: tuple[bytes, dict[str, Slot]],
    path: Path,
) -> None:
    head, slots = layout

    def write(temporary: Path) -> None:
        with temporary.open("wb") as handle:
            handle.write(head)
            for target in shard:
                assert handle.tell() == slots[target.name].start
                _write_tensor(source, config, target, handle)

    commit(path, write)


def _write_tensor(source: ShardRows, config: Mapping[str, Any], target: Target, handle: Any) -> None:
    width = row_numbers(target.shape)
    for run in runs(target.entry, config):
        if run.part != target.part:
            continue
        for block in blocks(run, width * target.source.itemsize, BLOCK):
            rows = torch.empty((block.rows, width), dtype=target.source)
            source.read_rows(target.entry.stored, target.entry.layer, block.at, rows)
            handle.write(bytes_of(rows.to(target.dtype)))


def _identity(checkpoint: Path, config: Mapping[str, Any], dtype: str, shard_bytes: int) -> str:
    """Changes when the source or a setting changes. Shard files count by size and time: hashing them costs as much as
    converting them."""
    parts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(checkpoint.glob("*.distcp"))]
    return digest(
        {
            "source": [sha256_file(checkpoint / ".metadata"), *map(list, parts)],
            "config": dict(config),
            "dtype": dtype,
            "shard_bytes": shard_bytes,
        }
    )


def _is_whole(path: Path, slots: Mapping[str, Slot]) -> bool:
    """Files get their name after an fsync, so one that is there is whole; its header says whether it is the one."""
    try:
        return path.is_file() and read_header(path) == slots
    except CorruptPayload:
        return False
