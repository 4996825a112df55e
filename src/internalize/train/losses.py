"""The three losses and their normalisers.

Invariant: L = sum(L_rl) / N_rl + sum(L_ce) / N_ce + sum(L_kl) / N_kl, where the sums and the normalisers run
over the whole optimizer batch. So neither micro-batches, nor packing, nor the length of a sequence, nor the
presence of another kind of token changes the gradient weight of a token.

Left out of Dr.GRPO, on purpose: no KL to a reference policy, no division by a response's length, no division
by the group's standard deviation (the advantages come in as reward minus group mean over episodes).

Pure torch on per-token tensors [n]; float32 or float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from internalize.train.batch import BatchError, TrainSequence


@dataclass(frozen=True)
class LossSpec:
    """How the losses of a batch are formed.

    Args:
        temperature: sampling temperature of the rollouts; policy log-probs are those of softmax(logits /
            temperature). Cross-entropy and KL use the plain softmax.
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        normaliser: N_rl is ``"constant"`` = episodes in the batch * ``tokens_per_episode`` (Dr.GRPO), or
            ``"tokens"`` = number of policy tokens in the batch (token mean).
        tokens_per_episode: the constant; set once for a run, never from the data of a batch.
    """

    temperature: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    normaliser: Literal["constant", "tokens"] = "constant"
    tokens_per_episode: float = 54.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise BatchError(
                "policy log-probs need a sampling temperature above 0",
                expected="temperature > 0",
                got=f"{self.temperature}",
                fix="greedy rollouts cannot be trained on",
            )
        if not (0 <= self.clip_low < 1 and self.clip_high >= 0):
            raise BatchError(
                "impossible clip range",
                expected="0 <= clip_low < 1, clip_high >= 0",
                got=f"{self.clip_low}, {self.clip_high}",
            )
        if self.normaliser not in ("constant", "tokens"):
            raise BatchError("unknown normaliser", expected="constant or tokens", got=f"{self.normaliser}")
        if not self.tokens_per_episode > 0:
            raise BatchError("tokens_per_episode must be positive", expected="> 0", got=f"{self.tokens_per_episode}")


class Normalisers(NamedTuple):
    """Denominators of the three loss sums over one optimizer batch; 0 where the batch has no such token."""

    rl: float
    ce: float
    kl: float


def normalisers(sequences: Sequence[TrainSequence], spec: LossSpec) -> Normalisers:
    """Denominators over a whole optimizer batch; every data-parallel rank computes the same from the same
    batch.

    Episodes and policy tokens with zero advantage count (they are outcomes of the policy); what a caller does
    not want to count it leaves out of the batch.
    """
    policy = [s for s in sequences if s.pg_mask is not None]
    pg_tokens = sum(1 for s in policy for m in s.pg_mask or () if m)
    if spec.normaliser == "tokens":
        rl = float(pg_tokens)
    else:
        rl = len({s.episode for s in policy}) * spec.tokens_per_episode if pg_tokens else 0.0
    ce = float(sum(float(w) for s in sequences if s.ce_weights is not None for w in s.ce_weights))
    kl = float(sum(1 for s in sequences if s.kl_mask is not None for m in s.kl_mask if m))
    return Normalisers(rl=rl, ce=ce, kl=kl)


def weighted_cross_entropy(nll: Tensor, weights: Tensor) -> Tensor:
    """Sum of weight * negative log-likelihood; ``nll`` [n], ``weights`` [n] -> []."""
    return (nll * weights).sum()


class PolicyTerms(NamedTuple):
    """Per-token outcome of the clipped objective, each [n]; ``clipped`` is 1.0 where the clipped branch is
    the active one.
    """

    loss: Tensor
    ratio: Tensor
    clipped: Tensor


def clipped_policy_loss(logprobs: Tensor, rollout_logprobs: Tensor, advantages: Tensor, spec: LossSpec) -> PolicyTerms:
    """-min(ratio * A, clip(ratio) * A) per token, ratio = exp(logprobs - rollout_logprobs).

    Args:
        logprobs: [n], of the policy being trained, at the sampling temperature; carries the gradient.
        rollout_logprobs: [n], under which the tokens were sampled.
        advantages: [n].
    """
    ratio = torch.exp(logprobs - rollout_logprobs)
    free = ratio * advantages
    bound = ratio.clamp(1.0 - spec.clip_low, 1.0 + spec.clip_high) * advantages
    return PolicyTerms(-torch.minimum(free, bound), ratio.detach(), (bound < free).detach().to(ratio.dtype))


def kl_to_teacher(teacher_logprobs: Tensor, student_logprobs: Tensor) -> Tensor:
    """KL(teacher || student) per token over the full vocabulary; both [n, V] log-probabilities -> [n].

    Entries that the teacher gives probability 0 add 0.
    """
    teacher = teacher_logprobs.exp()
    gap = torch.where(teacher > 0, teacher_logprobs - student_logprobs, torch.zeros_like(student_logprobs))
    return (teacher * gap).sum(-1)
