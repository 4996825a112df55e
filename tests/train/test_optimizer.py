from __future__ import annotations

from typing import Any

import numpy as np
import torch
from training_examples import ce_sequence

from internalize.train.losses import LossSpec


def test_reset_equals_a_fresh_optimizer_bit_for_bit(make_trainer: Any) -> None:
    """And without the reset the same steps end elsewhere."""
    rng = np.random.default_rng(0)
    batches = [[ce_sequence(rng, n) for n in (12, 20)] for _ in range(5)]
    reset, kept = make_trainer(weight_decay=0.01), make_trainer(weight_decay=0.01)
    for batch in batches[:2]:
        reset.train_step(batch, LossSpec(), lr=1e-2)
        kept.train_step(batch, LossSpec(), lr=1e-2)
    fresh = make_trainer(reset.export_hf(), weight_decay=0.01)
    reset.reset_optimizer()
    for batch in batches[2:]:
        for trainer in (reset, kept, fresh):
            trainer.train_step(batch, LossSpec(), lr=1e-2)
    expected = fresh.export_hf()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in reset.export_hf().items())
    assert any(not torch.equal(tensor, expected[name]) for name, tensor in kept.export_hf().items())


def test_learning_rate_of_the_step_is_the_one_used(make_trainer: Any) -> None:
    batch = [ce_sequence(np.random.default_rng(1), 15)]
    small, large = make_trainer(lr=1e-3), make_trainer(lr=1.0)
    small.train_step(batch, LossSpec())
    large.train_step(batch, LossSpec(), lr=1e-3)
    expected = large.export_hf()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in small.export_hf().items())


def test_weight_decay_spares_the_gains(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    batch = [ce_sequence(np.random.default_rng(2), 15)]
    plain, decayed = make_trainer(weights), make_trainer(weights, weight_decay=0.5)
    for trainer in (plain, decayed):
        trainer.train_step(batch, LossSpec(), lr=1e-2)
    a, b = plain.export_hf(), decayed.export_hf()
    assert {a[name].dim() for name in a if torch.equal(a[name], b[name])} == {1}
    assert {a[name].dim() for name in a if not torch.equal(a[name], b[name])} == {2}


def test_gradients_are_clipped_at_the_norm(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    batch = [ce_sequence(np.random.default_rng(3), 15)]
    trainer = make_trainer(weights, clip_grad=0.01)
    stats = trainer.train_step(batch, LossSpec(), lr=0.0)
    assert stats.grad_norm > 0.01
    total = sum(float(p.main_grad.double().pow(2).sum()) for p in trainer.model.parameters())
    assert abs(total**0.5 - 0.01) < 1e-6
