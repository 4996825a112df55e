"""Log-probs of every token from a model that trains, at any parallel shape.

Invariant: they come out of the model, the packing, the schedule and the cross entropy that training uses; nothing is
recomputed in another way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from internalize.train.batch import TrainSequence
from internalize.train.forward import forward_step, run_schedule
from internalize.train.losses import LossSpec, Normalisers
from internalize.train.mcore import DistributedDataParallel, vocab_parallel_cross_entropy
from internalize.train.packing import MicroBatch, pack
from internalize.train.shim import cpu_stand_ins


def token_logprobs(
    model: DistributedDataParallel, sequences: Sequence[Sequence[int]], temperature: float, max_tokens: int
) -> list[list[float]]:
    """Log-prob of each token given those before it; entry t speaks of `tokens[t]`, entry 0 is 0.0.

    Every rank calls it; ranks without the last pipeline stage get an empty list.

    Args:
        max_tokens: input tokens of a micro-batch.
    """
    batches = pack([policy_sequence(tokens) for tokens in sequences], max_tokens)
    with cpu_stand_ins(), torch.no_grad():
        parts: list[Tensor] = run_schedule(functools.partial(_forward, temperature), batches, model, forward_only=True)
    if not parts:
        return []
    flat = iter(torch.cat(parts).tolist())
    return [[0.0, *(next(flat) for _ in tokens[1:])] for tokens in sequences]


def policy_sequence(
    tokens: Sequence[int],
    logprobs: Sequence[float] | None = None,
    *,
    sampled_from: int = 1,
    episode: str = "numerics",
) -> TrainSequence:
    """The tokens from `sampled_from` on as policy tokens with advantage 1 of one episode."""
    n = len(tokens)
    return TrainSequence(
        list(tokens),
        advantages=[1.0] * n,
        rollout_logprobs=list(logprobs) if logprobs is not None else [0.0] * n,
        pg_mask=[int(at >= sampled_from) for at in range(n)],
        episode=episode,
    )


def _forward(
    temperature: float, batches: Iterator[MicroBatch], model: DistributedDataParallel
) -> tuple[Tensor, functools.partial[tuple[Tensor, Tensor, Tensor]]]:
    """Megatron's forward step that reports log-probs instead of a loss."""
    kept: list[MicroBatch] = []

    def watched() -> Iterator[MicroBatch]:
        for batch in batches:
            kept.append(batch)
            yield batch

    logits, _ = forward_step(LossSpec(temperature=temperature), Normalisers(1.0, 1.0, 1.0), watched(), model)
    return logits, functools.partial(_report, temperature, kept[0])


def _report(temperature: float, batch: MicroBatch, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, labels = (torch.from_numpy(x).to(logits.device) for x in (batch.pg_rows, batch.labels))
    logprobs = -vocab_parallel_cross_entropy(logits[0].index_select(0, rows) / temperature, labels[rows])
    return logits.new_zeros(()), torch.zeros((), dtype=torch.int, device=logits.device), logprobs
