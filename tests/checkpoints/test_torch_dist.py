"""The reader on checkpoints put together by hand from the format's description, sharded in several ways.

That a real trainer's checkpoint reads the same here and in Megatron is shown in tests/train/test_saving.py.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
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

import internalize
from internalize.checkpoints import hf_names
from internalize.checkpoints.hf_names import TensorMismatchError
from internalize.checkpoints.torch_dist import TorchDist, load_common, read_hf
from internalize.errors import CorruptPayload, MissingPayload

CONFIG: dict[str, Any] = {
    "vocab_size": 10,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 6,
    "tie_word_embeddings": True,
}


def model(seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=g)
        for entry in hf_names.entries(CONFIG)
        for name, shape in zip(entry.hf, entry.shapes, strict=True)
    }


def stacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Global tensors under their stored names, per-layer ones stacked."""
    tensors = hf_names.to_megatron(state, CONFIG)
    found: dict[str, list[Tensor]] = {}
    for entry in hf_names.entries(CONFIG):
        found.setdefault(entry.stored, []).append(tensors[entry.module])
    layered = {e.stored for e in hf_names.entries(CONFIG) if e.layer is not None}
    return {k: torch.stack(v) if k in layered else v[0] for k, v in found.items()}


def write(folder: Path, tensors: dict[str, Tensor], split: Callable[[str], int]) -> Path:
    """A folder in torch_dist layout: layers apart, rows cut in ``split(name)``, spread over two files."""
    folder.mkdir()
    metadata = Metadata({}, storage_data={})
    blobs = {"__0_0.distcp": b"", "__1_0.distcp": b""}
    count = 0
    for name, tensor in tensors.items():
        layered = name.startswith(hf_names.LAYERS)
        chunks = []
        for layer, part in enumerate(tensor.split(1) if layered else [tensor]):
            axis, start = int(layered), 0
            for piece in part.chunk(split(name), axis):
                offsets = [layer, *[0] * (part.dim() - 1)] if layered else [0] * part.dim()
                offsets[axis] += start
                start += piece.shape[axis]
                path = folder / "piece"
                torch.save(piece.clone(), path)
                file = sorted(blobs)[count % 2]
                count += 1
                size = path.stat().st_size
                metadata.storage_data[MetadataIndex(name, offsets)] = _StorageInfo(file, len(blobs[file]), size)
                blobs[file] += path.read_bytes()
                path.unlink()
                chunks.append(ChunkStorageMetadata(torch.Size(offsets), piece.shape))
        properties = TensorProperties(dtype=tensor.dtype)
        metadata.state_dict_metadata[name] = TensorStorageMetadata(properties, tensor.shape, chunks)
    for file, data in blobs.items():
        (folder / file).write_bytes(data)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    torch.save({"iteration": 4, "args": {"note": "x"}}, folder / "common.pt")
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "iter_0000004", stacked(model()), lambda name: 2)


@pytest.mark.parametrize("cuts", [1, 2, 3])
def test_any_sharding_gives_the_same_tensors(tmp_path: Path, cuts: int) -> None:
    tensors = stacked(model())
    with TorchDist(write(tmp_path / "c", tensors, lambda name: cuts)) as checkpoint:
        for name, tensor in tensors.items():
            assert torch.equal(checkpoint.read(name), tensor)
            if name.startswith(hf_names.LAYERS):
                assert all(torch.equal(checkpoint.read(name, i), tensor[i]) for i in range(3))
        assert checkpoint.tensors() == {name: tuple(t.shape) for name, t in tensors.items()}
        assert load_common(checkpoint.folder) == {"iteration": 4, "args": {"note": "x"}}
    state = read_hf(tmp_path / "c", CONFIG)
    assert all(torch.equal(state[name], tensor) for name, tensor in model().items())


def test_vocabulary_padding_is_dropped(tmp_path: Path) -> None:
    tensors = stacked(model())
    name = "embedding.word_embeddings.weight"
    tensors[name] = torch.cat([tensors[name], torch.zeros(6, 8)])
    state = read_hf(write(tmp_path / "c", tensors, lambda name: 2), CONFIG)
    assert torch.equal(state["model.embed_tokens.weight"], model()["model.embed_tokens.weight"])


def test_it_reads_without_megatron(folder: Path) -> None:
    code = (
        "import sys, json; from pathlib import Path; sys.modules['megatron'] = None\n"
        "from internalize.checkpoints.torch_dist import read_hf\n"
        "print(len(read_hf(Path(sys.argv[1]), json.loads(sys.argv[2]))))\n"
        "assert 'torch.distributed.checkpoint' not in sys.modules, 'costs 0.7 CPU s'"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(internalize.__file__).parents[1])}
    command = [sys.executable, "-c", code, str(folder), json.dumps(CONFIG)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(model()))), done.stderr


@pytest.mark.parametrize("part", [".metadata", "metadata.json", "common.pt", "__1_0.distcp"])
def test_a_missing_part_is_named(folder: Path, part: str) -> None:
    (folder / part).unlink()
    with pytest.raises(MissingPayload, match="incomplete") as error:
        read_hf(folder, CONFIG)
    assert error.value.where.endswith(part)
    assert error.value.expected
    assert error.value.fix


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingPayload, match="no such checkpoint"):
        read_hf(tmp_path / "c", CONFIG)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        (".metadata", b"\x80\x04garbage"),
        (".metadata", b""),
        (".metadata", pickle.dumps({"not": "metadata"})),
        ("metadata.json", b"{"),
        ("metadata.json", b'{"sharded_backend": "zarr"}'),
        ("__0_0.distcp", b"short"),
    ],
)
def test_a_damaged_part_is_named(folder: Path, part: str, content: bytes) -> None:
    (folder / part).write_bytes(content)
    with pytest.raises(CorruptPayload) as error:
        read_hf(folder, CONFIG)
    assert error.value.where.endswith(part)
    assert error.value.expected
    assert error.value.got
    assert error.value.fix


def test_scrambled_tensor_bytes_are_reported_with_their_tensor(folder: Path) -> None:
    path = folder / "__0_0.distcp"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(CorruptPayload, match="damaged") as error:
        read_hf(folder, CONFIG)
    assert "embedding.word_embeddings.weight" in error.value.expected


class Bomb:
    """Unpickling this would create a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("part", [".metadata", "common.pt"])
def test_files_are_never_executed(folder: Path, tmp_path: Path, part: str) -> None:
    if part == "common.pt":
        torch.save({"args": Bomb(tmp_path / "boom")}, folder / part)
    else:
        (folder / part).write_bytes(pickle.dumps(Bomb(tmp_path / "boom")))
    with pytest.raises(CorruptPayload) as error:
        read_hf(folder, CONFIG) if part == ".metadata" else load_common(folder)
    assert error.value.where.endswith(part)
    assert not (tmp_path / "boom").exists()


def test_another_model_is_refused(folder: Path) -> None:
    for change in (
        {"num_hidden_layers": 2},
        {"num_hidden_layers": 4},
        {"tie_word_embeddings": False},
        {"intermediate_size": 5},
        {"vocab_size": 11},
    ):
        with pytest.raises(TensorMismatchError) as error:
            read_hf(folder, {**CONFIG, **change})
        assert error.value.where
    with TorchDist(folder) as checkpoint, pytest.raises(MissingPayload):
        checkpoint.read("decoder.layers.nothing")
    with TorchDist(folder) as checkpoint, pytest.raises(MissingPayload, match="layer 3"):
        checkpoint.read("decoder.layers.mlp.linear_fc1.weight", 3)
