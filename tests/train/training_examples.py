"""A tiny model config, random weights, and random sequences of each kind, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from internalize.checkpoints import hf_names
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.trainer import Trainer

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 256,
}


def random_weights(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.3 + (1.0 if len(shape) == 1 else 0.0)
        for entry in hf_names.entries(config)
        for name, shape in zip(entry.hf, entry.shapes, strict=True)
    }


def ce_sequence(rng: np.random.Generator, n: int, episode: str = "row") -> TrainSequence:
    """Random tokens, random float weights, some of them 0."""
    weights = [0.0, *(rng.uniform(0.1, 3.0, n - 1) * rng.integers(0, 2, n - 1)).tolist()]
    weights[-1] = 1.5
    return TrainSequence(rng.integers(0, 40, n).tolist(), ce_weights=weights, episode=episode)


def pg_sequence(rng: np.random.Generator, n: int, advantage: float, episode: str, near: float = -3.7) -> TrainSequence:
    """Random policy tokens whose rollout log-probs lie about ``near``, so that some ratios are clipped."""
    mask = [0, *rng.integers(0, 2, n - 1).tolist()]
    mask[-1] = 1
    return TrainSequence(
        rng.integers(0, 40, n).tolist(),
        advantages=[advantage * m for m in mask],
        rollout_logprobs=(near + rng.normal(0, 0.5, n)).tolist(),
        pg_mask=mask,
        episode=episode,
    )


def kl_sequence(rng: np.random.Generator, n: int) -> TrainSequence:
    scores = torch.from_numpy(rng.normal(0, 1, (n, 40)))
    mask = [0, *rng.integers(0, 2, n - 1).tolist()]
    mask[-1] = 1
    return TrainSequence(
        rng.integers(0, 40, n).tolist(),
        teacher_logprobs=scores.log_softmax(-1).numpy().astype(np.float32),
        kl_mask=mask,
        episode="teacher",
    )


def gradients(trainer: Trainer, batch: list[TrainSequence], spec: LossSpec) -> dict[str, Tensor]:
    """Gradients of a batch by Megatron name; needs a trainer that does not clip. Weights stay: lr is 0."""
    assert trainer.optimizer_spec.clip_grad == 0
    trainer.train_step(batch, spec, lr=0.0)
    return {name: p.main_grad.clone() for name, p in trainer.model.named_parameters()}


def assert_close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 2e-6) -> None:
    """Within ``tolerance`` of the largest entry of both, tensor by tensor of one scale."""
    scale = max(float(t.abs().max()) for t in (*a.values(), *b.values()))
    worst = max(float((a[name] - b[name]).abs().max()) for name in a)
    assert a.keys() == b.keys()
    assert worst <= tolerance * max(scale, 1e-30), f"{worst / scale:.2e} of the largest entry"
