"""One training sequence: token ids and three per-token streams of supervision.

Invariant: every stream has one entry a token, and index ``t`` speaks of *predicting* ``tokens[t]`` from
``tokens[:t]``; so index 0 is never trained. A stream entry of 0 means "not trained", whether it is a weight
or a mask.

Plain Python and numpy: rollouts, rows and dumps build these without importing torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from internalize.errors import UserError


class BatchError(UserError):
    """A training sequence contradicts itself."""

    title = "training data error"


@dataclass(slots=True)
class TrainSequence:
    """Token ids with up to three kinds of supervision; any subset of them may be present (a joint batch mixes
    sequences).

    Args:
        tokens: n token ids.
        ce_weights: n weights (>= 0, float or int) of the cross-entropy of each token.
        advantages: n policy-gradient advantages, read where ``pg_mask`` is 1.
        rollout_logprobs: n log-probabilities under which the token was sampled, at the sampling temperature;
            read where ``pg_mask`` is 1.
        pg_mask: n flags, 1 where the policy sampled the token.
        teacher_logprobs: array [n, V] of log-probabilities; row t is the teacher's distribution for
            predicting ``tokens[t]``.
        kl_mask: n flags, 1 where KL(teacher || student) is taken.
        episode: id of the episode (or row) that it comes from; several sequences may share one.

    Raises:
        BatchError: a stream has another length, trains index 0, holds a negative weight or something not
            finite, or lacks its partner.
    """

    tokens: list[int]
    ce_weights: list[float] | None = None
    advantages: list[float] | None = None
    rollout_logprobs: list[float] | None = None
    pg_mask: list[int] | None = None
    teacher_logprobs: NDArray[np.floating] | None = field(default=None, repr=False)
    kl_mask: list[int] | None = None
    episode: str = ""

    def __post_init__(self) -> None:
        n = len(self.tokens)
        for name in (
            "ce_weights",
            "advantages",
            "rollout_logprobs",
            "pg_mask",
            "teacher_logprobs",
            "kl_mask",
        ):
            stream = getattr(self, name)
            if stream is not None and len(stream) != n:
                raise self._error(f"{name} has another length than tokens", f"{n} entries", f"{len(stream)}")
        if self.pg_mask is not None and (self.advantages is None or self.rollout_logprobs is None):
            raise self._error("pg_mask without advantages and rollout_logprobs", "all three", "pg_mask")
        if self.kl_mask is not None and self.teacher_logprobs is None:
            raise self._error("kl_mask without teacher_logprobs", "both", "kl_mask")
        for name in ("ce_weights", "pg_mask", "kl_mask"):
            stream = getattr(self, name)
            if stream and stream[0]:
                raise self._error(
                    f"{name} trains the first token, which nothing predicts", "0 at index 0", f"{stream[0]}"
                )
        if self.ce_weights is not None and not all(0.0 <= w < math.inf for w in self.ce_weights):
            bad = next(w for w in self.ce_weights if not 0.0 <= w < math.inf)
            raise self._error("a cross-entropy weight is negative or not finite", "0 <= weight < inf", f"{bad}")
        for name in ("advantages", "rollout_logprobs"):
            stream = getattr(self, name)
            if stream is not None and not all(map(math.isfinite, stream)):
                raise self._error(f"{name} holds something not finite", "finite numbers", "nan or inf")

    def _error(self, what: str, expected: str, got: str) -> BatchError:
        return BatchError(what, where=f"sequence of episode {self.episode!r}", expected=expected, got=got)

    @property
    def last_trained(self) -> int:
        """Index of the last token with a gradient, 0 if none; what follows it need not be computed (attention
        is causal).
        """
        for t in range(len(self.tokens) - 1, 0, -1):
            if self.ce_weights is not None and self.ce_weights[t]:
                return t
            if self.pg_mask is not None and self.pg_mask[t] and self.advantages is not None and self.advantages[t]:
                return t
            if self.kl_mask is not None and self.kl_mask[t]:
                return t
        return 0
