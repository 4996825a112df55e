from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from training_examples import ce_sequence, pg_sequence

from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.stats import NonFiniteError, refuse_non_finite


def test_a_broken_weight_is_named_and_nothing_moves(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    batch = [ce_sequence(np.random.default_rng(0), 12)]
    weights["model.layers.1.mlp.down_proj.weight"][3, 4] = float("nan")
    trainer = make_trainer(weights)
    before = trainer.export_hf()
    with pytest.raises(NonFiniteError, match=r"weight decoder\.layers\.1\.mlp\.linear_fc2\.weight") as error:
        trainer.train_step(batch, LossSpec(), lr=1e-2)
    assert "optimizer step 1" in error.value.where
    assert trainer.steps == 0
    assert all(torch.equal(t.nan_to_num(7.0), before[n].nan_to_num(7.0)) for n, t in trainer.export_hf().items())


def test_an_overflowing_loss_is_named(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    sequence = pg_sequence(np.random.default_rng(1), 9, -1.0, "a", near=-200.0)  # ratio exp(195) overflows
    trainer = make_trainer(weights)
    with pytest.raises(NonFiniteError, match="the sum of pg over the batch"):
        trainer.train_step([sequence], LossSpec(), lr=1e-2)
    healthy = TrainSequence(sequence.tokens, ce_weights=[0.0] + [1.0] * 8)
    assert trainer.train_step([healthy], LossSpec(), lr=1e-2).loss > 0, "the trainer is still usable"


def test_a_broken_gradient_is_named_where_loss_and_weights_are_fine() -> None:
    good, bad = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    good.main_grad, bad.main_grad = torch.ones(2), torch.tensor([1.0, float("inf")])
    with pytest.raises(NonFiniteError, match="the gradient of b"):
        refuse_non_finite({"ce": 1.0}, [bad.main_grad], {"a": good, "b": bad}, 3)


def test_finite_gradients_whose_sum_overflows_are_let_through() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.main_grad = torch.tensor([3e38, 3e38])
    refuse_non_finite({"ce": 1.0}, [parameter.main_grad], {"a": parameter}, 1)


def test_the_error_survives_a_process_boundary() -> None:
    error = NonFiniteError("weight x is not finite", where="optimizer step 2")
    assert str(copy.deepcopy(error)) == str(error)
