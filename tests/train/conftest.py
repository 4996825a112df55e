"""One torch thread, a tiny model, and trainers that close themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from training_examples import CONFIG, random_weights

from internalize.train.trainer import OptimizerSpec, Trainer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config() -> dict[str, Any]:
    return dict(CONFIG)


@pytest.fixture
def weights(config: dict[str, Any]) -> dict[str, Tensor]:
    return random_weights(config, 0)


@pytest.fixture
def make_trainer(config: dict[str, Any]) -> Iterator[Callable[..., Trainer]]:
    """Trainers on given weights; all are closed at the end."""
    made: list[Trainer] = []

    def make(state: dict[str, Tensor] | None = None, *, seed: int = 0, **options: Any) -> Trainer:
        max_tokens = options.pop("max_tokens", 8192)
        trainer = Trainer(config, OptimizerSpec(**options), seed=seed, max_tokens=max_tokens)
        made.append(trainer)
        if state is not None:
            trainer.load_hf(state)
        return trainer

    yield make
    for trainer in made:
        trainer.close()
