"""HF -> torch_dist -> HF: Megatron loads what we write, and the model that comes back computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from training_examples import CONFIG, ce_sequence, random_weights
from transformers import Qwen3ForCausalLM

from internalize.checkpoints.from_hf import write_checkpoint
from internalize.checkpoints.to_hf import write_weights
from internalize.files import write_json
from internalize.train.losses import LossSpec

ARGS = {"model_config": CONFIG, "optimizer": {}, "seed": 5, "steps": 0, "lr": 0.0, "has_moments": False}


def folder(path: Path) -> Path:
    path.mkdir()
    write_json(path / "config.json", {**CONFIG, "architectures": ["Qwen3ForCausalLM"], "dtype": "float32"})
    save_file(random_weights(CONFIG, 3), path / "model.safetensors", metadata={"format": "pt"})
    return path


def logits(path: Path) -> torch.Tensor:
    model = Qwen3ForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model(torch.arange(30).reshape(2, 15)).logits


@pytest.mark.parametrize("dtype", ["keep", "bfloat16"])
def test_megatron_loads_a_converted_model_and_trains_on(make_trainer: Any, tmp_path: Path, dtype: Any) -> None:
    write_checkpoint(folder(tmp_path / "hf"), tmp_path / "iter", 4, ARGS, dtype)
    weights = random_weights(CONFIG, 3)
    if dtype != "keep":
        weights = {name: tensor.bfloat16().float() for name, tensor in weights.items()}
    loaded, direct = make_trainer(seed=1), make_trainer(weights, seed=2)
    assert loaded.load(tmp_path / "iter") == 4
    for name, tensor in direct.export_hf().items():
        assert torch.equal(loaded.export_hf()[name], tensor), name
    batch = [ce_sequence(np.random.default_rng(0), 12)]
    for _ in range(2):
        assert loaded.train_step(batch, LossSpec(), 1e-2).loss == direct.train_step(batch, LossSpec(), 1e-2).loss


def test_there_and_back_a_model_gives_equal_logits(tmp_path: Path) -> None:
    source = folder(tmp_path / "hf")
    write_checkpoint(source, tmp_path / "iter", 0, ARGS)
    write_weights(tmp_path / "iter", CONFIG, tmp_path / "back", "keep", shard_bytes=9000)
    write_json(tmp_path / "back" / "config.json", {**CONFIG, "architectures": ["Qwen3ForCausalLM"]})
    assert torch.equal(logits(tmp_path / "back"), logits(source))


def test_a_trained_checkpoint_becomes_the_model_that_was_trained(make_trainer: Any, tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.train_step([ce_sequence(np.random.default_rng(0), 12)], LossSpec(), 1e-2)
    trainer.save(tmp_path / "iter", iteration=1)
    write_weights(tmp_path / "iter", CONFIG, tmp_path / "hf", "float32")
    write_json(tmp_path / "hf" / "config.json", {**CONFIG, "architectures": ["Qwen3ForCausalLM"]})
    again = make_trainer()
    again.load_hf(Qwen3ForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).state_dict())
    for name, tensor in trainer.export_hf().items():
        assert torch.equal(again.export_hf()[name], tensor), name
