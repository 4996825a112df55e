from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from training_examples import ce_sequence

from internalize.errors import UserError
from internalize.train import distributed
from internalize.train.distributed import ParallelSpec
from internalize.train.losses import LossSpec
from internalize.train.mcore import parallel_state
from internalize.train.model import ModelConfigError
from internalize.train.trainer import Trainer


def test_the_last_trainer_takes_its_process_group_with_it(config: dict[str, Any]) -> None:
    assert not dist.is_initialized()
    with Trainer(config) as first:
        with Trainer(config) as second:
            second.close()
            second.close()
        first.train_step([ce_sequence(np.random.default_rng(0), 9)], LossSpec())
        assert dist.get_world_size() == 1
    assert not dist.is_initialized()
    assert not parallel_state.model_parallel_is_initialized()


def test_an_existing_process_group_is_used_and_left_alone(config: dict[str, Any]) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        with Trainer(config) as trainer:
            trainer.train_step([ce_sequence(np.random.default_rng(0), 9)], LossSpec())
        assert dist.is_initialized()
        assert not parallel_state.model_parallel_is_initialized()
    finally:
        dist.destroy_process_group()


def test_a_failed_build_leaves_no_group_behind(config: dict[str, Any]) -> None:
    config["hidden_act"] = "gelu"
    with pytest.raises(ModelConfigError):
        Trainer(config)
    assert not dist.is_initialized()


def test_one_process_cannot_serve_two_parallel_shapes(config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="process group"):
        distributed.acquire(ParallelSpec(tp=2))
    assert not dist.is_initialized()
    with Trainer(config), pytest.raises(UserError, match="another parallel shape"):
        distributed.acquire(ParallelSpec(tp=2))
