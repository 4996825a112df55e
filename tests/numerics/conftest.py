"""One torch thread, a tiny square model (a transposed weight still fits), and its HF folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from training_examples import CONFIG, random_weights

from internalize.files import write_json
from internalize.train.trainer import OptimizerSpec, Trainer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config() -> dict[str, Any]:
    return {**CONFIG, "num_hidden_layers": 3, "hidden_act": "silu"}


@pytest.fixture
def weights(config: dict[str, Any]) -> dict[str, Tensor]:
    return random_weights(config, 0)


@pytest.fixture
def folder(config: dict[str, Any], weights: dict[str, Tensor], tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    write_json(model / "config.json", config)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, model / "model.safetensors")
    return model


@pytest.fixture
def make_trainer(config: dict[str, Any], weights: dict[str, Tensor]) -> Iterator[Callable[[], Trainer]]:
    """Trainers on the weights; all are closed at the end."""
    made: list[Trainer] = []

    def make() -> Trainer:
        made.append(Trainer(config, OptimizerSpec()))
        made[-1].load_hf(weights)
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()
