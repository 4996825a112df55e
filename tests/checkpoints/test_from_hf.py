"""safetensors -> torch_dist and back: the same tensors, for our reader, for Megatron, and for a model's logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_at_fsync
from safetensors.torch import save_file
from sharded import CONFIG, model
from test_to_hf import read, same
from torch import Tensor

from internalize.checkpoints.from_hf import write_checkpoint
from internalize.checkpoints.hf_names import TensorMismatchError
from internalize.checkpoints.to_hf import write_weights
from internalize.checkpoints.torch_dist import load_common, read_hf
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import sha256_file, write_json


def hf(folder: Path, state: dict[str, Tensor], config: dict[str, Any] = CONFIG) -> Path:
    """A model folder in one file, written by the safetensors package."""
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_there_and_back_is_identical(tmp_path: Path, tied: bool, dtype: torch.dtype) -> None:
    config = {**CONFIG, "tie_word_embeddings": tied}
    state = model(config=config, dtype=dtype)
    write_checkpoint(hf(tmp_path / "a", state, config), tmp_path / "iter", 7, {"seed": 1}, file_bytes=900)
    assert len(list((tmp_path / "iter").glob("__0_*.distcp"))) > 2
    assert {path.suffix or path.name for path in (tmp_path / "iter").iterdir()} == {
        ".distcp",
        ".metadata",
        ".json",
        ".pt",
    }
    write_weights(tmp_path / "iter", config, tmp_path / "b", "keep", shard_bytes=700)
    assert same(read(tmp_path / "b"), state)
    assert same(read_hf(tmp_path / "iter", config), state)
    assert load_common(tmp_path / "iter") == {"args": {"seed": 1}, "checkpoint_version": 3.0, "iteration": 7}


def test_a_sharded_model_folder_and_a_change_of_type(tmp_path: Path) -> None:
    write_checkpoint(hf(tmp_path / "a", model()), tmp_path / "one", 0, {})
    write_weights(tmp_path / "one", CONFIG, tmp_path / "b", "bfloat16", shard_bytes=700)
    write_json(tmp_path / "b" / "config.json", CONFIG)
    write_checkpoint(tmp_path / "b", tmp_path / "two", 0, {}, "float32")
    halved = {name: tensor.bfloat16().float() for name, tensor in model().items()}
    assert same(read_hf(tmp_path / "two", CONFIG), halved)


def test_a_tied_copy_is_dropped(tmp_path: Path) -> None:
    state = {**model(), "lm_head.weight": model()["model.embed_tokens.weight"].clone()}
    write_checkpoint(hf(tmp_path / "a", state), tmp_path / "iter", 0, {})
    assert same(read_hf(tmp_path / "iter", CONFIG), model())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("model.norm.weight"), "missing model.norm.weight [8]"),
        (lambda s: s.update(vision=torch.zeros(2)), "unexpected vision [2]"),
        (lambda s: s.update({"model.norm.weight": torch.zeros(9)}), "model.norm.weight is [9], not [8]"),
        (lambda s: s.update({"model.layers.1.mlp.up_proj.weight": torch.zeros(6, 8).half()}), "torch.float16"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named_before_anything_is_written(
    tmp_path: Path, change: Any, words: str
) -> None:
    state = model()
    change(state)
    with pytest.raises(TensorMismatchError) as error:
        write_checkpoint(hf(tmp_path / "a", state), tmp_path / "iter", 0, {})
    assert words in error.value.got
    assert not (tmp_path / "iter").exists()


def test_a_cut_or_missing_weight_file_is_named(tmp_path: Path) -> None:
    folder = hf(tmp_path / "a", model())
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CorruptPayload, match="not a whole") as error:
        write_checkpoint(folder, tmp_path / "iter", 0, {})
    assert error.value.where.endswith("model.safetensors")
    path.unlink()
    with pytest.raises(MissingPayload):
        write_checkpoint(folder, tmp_path / "iter", 0, {})


def test_a_killed_conversion_is_incomplete_and_goes_on(tmp_path: Path) -> None:
    source = hf(tmp_path / "a", model())
    write_checkpoint(source, tmp_path / "straight", 3, {}, file_bytes=900)
    killed_at_fsync(9, lambda: write_checkpoint(source, tmp_path / "iter", 3, {}, file_bytes=900, writers=2))
    with pytest.raises(MissingPayload, match="incomplete"):
        read_hf(tmp_path / "iter", CONFIG)
    whole = {path: path.stat().st_mtime_ns for path in (tmp_path / "iter").glob("places-*.json")}
    shards = {n: (tmp_path / "iter" / f"__0_{n}.distcp") for n in (int(p.stem.split("-")[1]) for p in whole)}
    before = {n: path.stat().st_mtime_ns for n, path in shards.items()}
    assert before
    write_checkpoint(source, tmp_path / "iter", 3, {}, file_bytes=900)
    assert {n: path.stat().st_mtime_ns for n, path in shards.items()} == before, "kept, not written again"
    names = {path.name for path in (tmp_path / "straight").iterdir()}
    assert {path.name for path in (tmp_path / "iter").iterdir()} == names
    for name in names:
        assert sha256_file(tmp_path / "iter" / name) == sha256_file(tmp_path / "straight" / name)
