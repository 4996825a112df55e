"""What one optimizer step did, and the guard that keeps a broken one from being taken.

Invariant: a step with anything that is not finite raises before the optimizer moves, and names the first
culprit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from internalize.errors import UserError
from internalize.train.forward import Sums
from internalize.train.packing import MicroBatch


class NonFiniteError(UserError):
    """A weight, a loss or a gradient is NaN or infinite; no optimizer step was taken."""

    title = "training stopped"


@dataclass(frozen=True)
class StepStats:
    """What one optimizer step did; every mean is over the step's policy tokens, before its update.

    Args:
        loss, ce_loss, pg_loss, kl_loss: total and the three normalised parts.
        grad_norm: global norm before clipping.
        clip_fraction: share of policy tokens whose clipped branch is the active one.
        ratio_mean: mean of exp(trainer - rollout log-prob).
        logprob_abs_diff: mean |trainer - rollout log-prob|; the mismatch of trainer and engine only at the
            first step of a rollout, later it also holds the updates since.
        tokens: input tokens computed.
        skipped: nothing to train, so no step was taken and weights and moments are untouched.

    The three means are None without policy tokens.
    """

    loss: float = 0.0
    ce_loss: float = 0.0
    pg_loss: float = 0.0
    kl_loss: float = 0.0
    grad_norm: float = 0.0
    clip_fraction: float | None = None
    ratio_mean: float | None = None
    logprob_abs_diff: float | None = None
    tokens: int = 0
    skipped: bool = False


def add_up(sums: Sequence[Sums]) -> dict[str, float]:
    """Totals over micro-batches by name, in float64; zeros on a pipeline stage that computes no loss."""
    if not sums:
        return dict.fromkeys(Sums._fields, 0.0)
    totals = torch.stack([torch.stack(s) for s in sums]).double().sum(0).tolist()
    return dict(zip(Sums._fields, totals, strict=True))


def counts(batches: Sequence[MicroBatch]) -> tuple[int, int]:
    """Input tokens and policy tokens."""
    return sum(batch.size for batch in batches), sum(len(batch.pg_rows) for batch in batches)


def step_stats(totals: Mapping[str, float], grad_norm: float, tokens: int, policy: int) -> StepStats:
    """Stats of a step that was taken, from its sums and counts over all ranks."""
    return StepStats(
        loss=totals["ce"] + totals["pg"] + totals["kl"],
        ce_loss=totals["ce"],
        pg_loss=totals["pg"],
        kl_loss=totals["kl"],
        grad_norm=grad_norm,
        clip_fraction=totals["clipped"] / policy if policy else None,
        ratio_mean=totals["ratio"] / policy if policy else None,
        logprob_abs_diff=totals["abs_diff"] / policy if policy else None,
        tokens=tokens,
    )


def refuse_non_finite(
    totals: Mapping[str, float], buffers: Sequence[Tensor], parameters: Mapping[str, Tensor], step: int
) -> None:
    """Raises if a loss or a gradient of the step is not finite.

    Args:
        totals: sums of the step.
        buffers: flat gradient buffers; their sums are looked at first, which is cheap and misses nothing.
        parameters: by name, each with its gradient in ``main_grad``.
        step: number of the optimizer step, for the message.

    Raises:
        NonFiniteError: names the first that is not finite: weights, then losses, then gradients, in model
            order.
    """
    if all(map(math.isfinite, totals.values())) and all(math.isfinite(b.sum().item()) for b in buffers):
        return
    suspects = [(f"weight {name}", parameter) for name, parameter in parameters.items()]
    suspects += [(f"the sum of {name} over the batch", torch.tensor(value)) for name, value in totals.items()]
    suspects += [(f"the gradient of {name}", parameter.main_grad) for name, parameter in parameters.items()]  # type: ignore[attr-defined]  # set by Megatron
    for name, tensor in suspects:
        if not bool(tensor.isfinite().all()):
            raise NonFiniteError(
                f"{name} is not finite",
                where=f"optimizer step {step}",
                expected="finite numbers",
                got="nan or inf",
                fix="lower the learning rate or look at the batch; the weights are those before this step",
            )


def severity(error: UserError) -> int:
    """Where ranks find different things not finite: a weight explains a loss, a loss explains a gradient."""
    return next((i for i, word in enumerate(("weight", "the sum")) if error.what.startswith(word)), 2)
