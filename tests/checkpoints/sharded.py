"""A tiny model and checkpoints of it in torch_dist layout, sharded as asked, put together from the format's
description with nothing but torch."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from internalize.checkpoints import hf_names

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 10,
    "hidden_size": 8,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 6,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
COLUMN_CUT = ("linear_proj.weight", "linear_fc2.weight")
"""Tensor parallelism cuts these along their columns, the other matrices along their rows."""


def model(seed: int = 0, config: dict[str, Any] = CONFIG, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """An HF state dict."""
    g = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=g).to(dtype)
        for entry in hf_names.entries(config)
        for name, shape in zip(entry.hf, entry.shapes, strict=True)
    }


def stacked(state: dict[str, Tensor], config: dict[str, Any] = CONFIG) -> dict[str, Tensor]:
    """Global tensors under their stored names, per-layer ones stacked."""
    tensors = hf_names.to_megatron(state, config)
    found: dict[str, list[Tensor]] = {}
    for entry in hf_names.entries(config):
        found.setdefault(entry.stored, []).append(tensors[entry.module])
    layered = {e.stored for e in hf_names.entries(config) if e.layer is not None}
    return {k: torch.stack(v) if k in layered else v[0] for k, v in found.items()}


def write(
    folder: Path, tensors: dict[str, Tensor], tp: int = 1, pp: int = 1, layers_a_chunk: int = 1, strided: bool = False
) -> Path:
    """A folder as ``tp * pp`` ranks leave it: one file a rank, layers spread over the pipeline, matrices cut by tp.

    Args:
        layers_a_chunk: layers in one chunk of a stacked tensor.
        strided: store the chunks column by column.
    """
    folder.mkdir(parents=True)
    metadata = Metadata({}, storage_data={})
    files = {(p, t): f"__{p * tp + t}_0.distcp" for p in range(pp) for t in range(tp)}
    blobs = {name: bytearray() for name in files.values()}
    for name, tensor in tensors.items():
        layered = name.startswith(hf_names.LAYERS)
        chunks = []
        groups = tensor.split(layers_a_chunk) if layered else [tensor]
        for g, part in enumerate(groups):
            stage = g * pp // len(groups)
            rows = int(layered)
            matrix = part.dim() - rows == 2
            axis = rows + 1 if matrix and name.endswith(COLUMN_CUT) else rows
            start = 0
            for t, piece in enumerate(part.chunk(tp, axis) if matrix else [part]):
                offsets = [g * layers_a_chunk, *[0] * (part.dim() - 1)] if layered else [0] * part.dim()
                offsets[axis] += start
                start += piece.shape[axis]
                file = files[stage, t]
                data = piece.transpose(-1, -2).contiguous().transpose(-1, -2) if strided and matrix else piece.clone()
                torch.save(data, folder / "piece")
                blob = (folder / "piece").read_bytes()
                metadata.storage_data[MetadataIndex(name, offsets)] = _StorageInfo(file, len(blobs[file]), len(blob))
                blobs[file] += blob
                chunks.append(ChunkStorageMetadata(torch.Size(offsets), piece.shape))
        properties = TensorProperties(dtype=tensor.dtype)
        metadata.state_dict_metadata[name] = TensorStorageMetadata(properties, tensor.shape, chunks)
    (folder / "piece").unlink()
    for file, data in blobs.items():
        (folder / file).write_bytes(data)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    torch.save({"iteration": 4, "args": {"note": "x"}}, folder / "common.pt")
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
    return folder


Change = Callable[[dict[str, Tensor]], None]
