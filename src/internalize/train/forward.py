"""One micro-batch through the model and into the loss.

Invariant: the logits of a row are used at the temperature that its loss is defined at: policy log-probs at
the sampling temperature, cross-entropy and KL at 1. All log-probs go through Megatron's parallel calls, so a
sharded vocabulary changes nothing here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from internalize.train.losses import (
    LossSpec,
    Normalisers,
    clipped_policy_loss,
    kl_to_teacher,
    weighted_cross_entropy,
)
from internalize.train.mcore import (
    DistributedDataParallel,
    PackedSeqParams,
    gather_from_tensor_model_parallel_region,
    get_forward_backward_func,
    vocab_parallel_cross_entropy,
)
from internalize.train.packing import MicroBatch
from internalize.train.shim import as_written


class Sums(NamedTuple):
    """Sums over a micro-batch, each []: the three normalised losses, then policy diagnostics."""

    ce: Tensor
    pg: Tensor
    kl: Tensor
    ratio: Tensor
    clipped: Tensor
    abs_diff: Tensor


LossFunction = functools.partial[tuple[Tensor, Tensor, Sums]]


def run_schedule(
    step: Callable[..., Any], batches: Sequence[MicroBatch], model: DistributedDataParallel, forward_only: bool = False
) -> list[Any]:
    """Megatron's schedule over the micro-batches; what ``step``'s function reports of each, on the last stage.

    Call inside ``shim.cpu_stand_ins``; every rank calls it.

    Args:
        step: takes (iterator of micro-batches, model), as ``forward_step`` bound to its first arguments.
    """
    reports: list[Any] = get_forward_backward_func()(
        forward_step_func=step,
        data_iterator=iter(batches),
        model=[model],
        num_microbatches=len(batches),
        seq_length=batches[0].size,
        micro_batch_size=1,
        forward_only=forward_only,
    )
    return reports


def forward_step(
    spec: LossSpec, norm: Normalisers, batches: Iterator[MicroBatch], model: DistributedDataParallel
) -> tuple[Tensor, LossFunction]:
    """Megatron's forward step: logits [1, T, V / tp] of the next micro-batch, and the function that makes
    their loss.
    """
    batch = next(batches)
    boundaries = _tensor(batch.boundaries).to(torch.int32)
    longest = int((batch.boundaries[1:] - batch.boundaries[:-1]).max())
    packing = PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=boundaries,
        cu_seqlens_kv=boundaries,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
    tokens, positions = _tensor(batch.tokens)[None], _tensor(batch.positions)[None]
    with as_written():
        logits = model(tokens, positions, None, packed_seq_params=packing)
    return logits, functools.partial(micro_batch_loss, spec, norm, batch)


def micro_batch_loss(
    spec: LossSpec, norm: Normalisers, batch: MicroBatch, logits: Tensor
) -> tuple[Tensor, Tensor, Sums]:
    """The micro-batch's share of the batch loss, a token count, and the sums to report.

    The token count is 0 on purpose: the loss is divided by its own normalisers already, and Megatron rescales
    gradients only by a count above 0 (an int, where our weights are floats).
    """
    flat, labels = logits[0], _tensor(batch.labels)
    ce = pg = kl = ratio = clipped = abs_diff = flat.new_zeros(())
    if len(batch.ce_rows):
        nll = -_logprobs(flat, labels, _tensor(batch.ce_rows), 1.0)
        ce = weighted_cross_entropy(nll, _tensor(batch.ce_weights)) / norm.ce
    if len(batch.pg_rows):
        logprobs = _logprobs(flat, labels, _tensor(batch.pg_rows), spec.temperature)
        rollout = _tensor(batch.rollout_logprobs)
        terms = clipped_policy_loss(logprobs, rollout, _tensor(batch.advantages), spec)
        pg = terms.loss.sum() / norm.rl
        ratio, clipped = terms.ratio.sum(), terms.clipped.sum()
        abs_diff = (logprobs.detach() - rollout).abs().sum()
    if batch.teacher_logprobs is not None:
        rows = flat.index_select(0, _tensor(batch.kl_rows))
        student = gather_from_tensor_model_parallel_region(rows).float().log_softmax(-1)
        kl = kl_to_teacher(_tensor(batch.teacher_logprobs), student).sum() / norm.kl
    sums = Sums(ce.detach(), pg.detach(), kl.detach(), ratio, clipped, abs_diff)
    loss = ce + pg + kl
    if not loss.requires_grad:
        loss = flat.sum() * 0.0  # an idle data-parallel rank goes through the motions: the others wait for it
    return loss, torch.zeros((), dtype=torch.int, device=flat.device), sums


def _tensor(array: NDArray[Any]) -> Tensor:
    """On the device of the model."""
    tensor = torch.from_numpy(array)
    return tensor.cuda() if torch.cuda.is_available() else tensor


def _logprobs(logits: Tensor, labels: Tensor, rows: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [n] of the labels at ``rows``; Megatron's cross entropy overwrites its input, so it
    gets a copy.
    """
    logprobs: Tensor = -vocab_parallel_cross_entropy(logits.index_select(0, rows) / temperature, labels[rows])
    return logprobs
