"""The first number that went wrong is named: module, shape, micro-batch, episodes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from training_examples import ce_sequence, pg_sequence

from internalize.train.losses import LossSpec
from internalize.train.nonfinite import located
from internalize.train.stats import NonFiniteError


def refused(trainer: Any, batch: list[Any]) -> NonFiniteError:
    with pytest.raises(NonFiniteError) as error:
        trainer.train_step(batch, LossSpec(), lr=1e-2)
    return located(trainer, batch, LossSpec(), error.value)


def sequences() -> list[Any]:
    rng = np.random.default_rng(0)
    return [ce_sequence(rng, 12, f"episode-{number}") for number in range(3)]


def test_the_first_activation_that_overflows_is_named(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    """A weight that is finite, but too large for what comes out of it."""
    weights["model.layers.1.mlp.up_proj.weight"][:] = 1e38
    trainer = make_trainer(weights, max_tokens=12)
    before = trainer.export_hf()
    found = refused(trainer, sequences())
    assert found.what == "the output of decoder.layers.1.mlp.linear_fc1 [11, 1, 96] is not finite"
    assert found.where == "optimizer step 1, micro-batch 1 of 3, episodes episode-0"
    assert "is not finite" in found.got  # what the trainer itself saw
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.export_hf().items())


def test_a_gradient_that_breaks_where_the_loss_is_fine_names_its_micro_batch(
    make_trainer: Any, weights: dict[str, torch.Tensor]
) -> None:
    trainer = make_trainer(weights, max_tokens=12)
    calls = itertools.cycle([1.0, float("nan"), 1.0])  # a backward that is wrong in the second of three micro-batches
    name = "decoder.layers.0.mlp.linear_fc1.weight"
    dict(trainer.model.named_parameters())[name].register_hook(lambda slope: slope * next(calls))
    found = refused(trainer, sequences())
    assert found.what == f"the gradient of {name} [96, 32] is not finite"
    assert found.where == "optimizer step 1, micro-batch 2 of 3, episodes episode-1"


def test_a_loss_that_overflows_names_its_micro_batch(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    rng = np.random.default_rng(1)
    batch = [pg_sequence(rng, 9, -1.0, "fine"), pg_sequence(rng, 9, -1.0, "broken", near=-200.0)]
    found = refused(make_trainer(weights, max_tokens=8), batch)
    assert found.what == "the sum of pg over the micro-batch is not finite"
    assert found.where == "optimizer step 1, micro-batch 2 of 2, episodes broken"


def test_a_broken_weight_keeps_its_name(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    weights["model.layers.1.mlp.down_proj.weight"][3, 4] = float("nan")
    found = refused(make_trainer(weights), sequences())
    assert found.what == "weight decoder.layers.1.mlp.linear_fc2.weight is not finite"


def test_what_cannot_be_looked_into_is_passed_on() -> None:
    error = NonFiniteError("the gradient of x is not finite", where="optimizer step 1")
    assert located(object(), sequences(), LossSpec(), error) is error
