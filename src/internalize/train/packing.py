"""Sequences -> packed micro-batches under a token cap.

Invariant: packing changes no per-token quantity. Sequences lie one after another without padding, attention
never crosses a boundary, positions restart at every boundary, and the loss streams are sums over rows; so any
split into micro-batches gives the same loss and gradient up to the order of float additions.

Row r of a micro-batch is the model's prediction *after* reading input token r, so it predicts ``tokens[t]``
with t = (position of r in its sequence) + 1. Tokens after the last trained one are not computed at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from internalize.train.batch import TrainSequence

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One packed forward pass of T input tokens in S sequences.

    Args:
        tokens, labels, positions: [T] input ids, ids to predict, positions inside the sequence.
        boundaries: [S + 1] cumulative lengths, first 0, last T.
        ce_rows, ce_weights: rows with a cross-entropy weight, and the weights.
        pg_rows, advantages, rollout_logprobs: rows of policy tokens.
        kl_rows, teacher_logprobs: rows with a teacher, and its distribution [rows, V].
    """

    tokens: Ints
    labels: Ints
    positions: Ints
    boundaries: Ints
    ce_rows: Ints
    ce_weights: Floats
    pg_rows: Ints
    advantages: Floats
    rollout_logprobs: Floats
    kl_rows: Ints
    teacher_logprobs: Floats | None

    @property
    def size(self) -> int:
        """Number of input tokens T."""
        return len(self.tokens)


def pack(sequences: Sequence[TrainSequence], max_tokens: int) -> list[MicroBatch]:
    """Packs the trained sequences, in order, into micro-batches of at most ``max_tokens`` input tokens.

    A single sequence longer than the cap becomes a micro-batch of its own. Sequences with nothing to train
    are left out.

    Args:
        sequences: of one optimizer batch (or of one data-parallel rank's share).
        max_tokens: bound on input tokens a micro-batch, >= 1; bounds activation memory, not results.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be >= 1, got {max_tokens}")
    groups: list[list[tuple[TrainSequence, int]]] = []
    room = 0
    for sequence in sequences:
        length = sequence.last_trained
        if length == 0:
            continue
        if not groups or length > room:
            groups.append([])
            room = max_tokens
        groups[-1].append((sequence, length))
        room -= length
    return [_micro_batch(group) for group in groups]


def idle() -> MicroBatch:
    """A micro-batch of one token that trains nothing: for a data-parallel rank whose share of a batch is empty."""
    zero, none, no_floats = np.zeros(1, dtype=np.int64), _ints([]), _floats([])
    return MicroBatch(zero, zero, zero, np.array([0, 1]), none, no_floats, none, no_floats, no_floats, none, None)


def _micro_batch(group: Sequence[tuple[TrainSequence, int]]) -> MicroBatch:
    lengths = np.array([length for _, length in group], dtype=np.int64)
    boundaries = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    ce_rows: list[Ints] = []
    pg_rows: list[Ints] = []
    kl_rows: list[Ints] = []
    ce_weights: list[Floats] = []
    advantages: list[Floats] = []
    logprobs: list[Floats] = []
    teachers: list[Floats] = []
    for (sequence, length), start in zip(group, boundaries[:-1], strict=True):
        if sequence.ce_weights is not None:
            weights = np.asarray(sequence.ce_weights[1 : length + 1], dtype=np.float32)
            rows = np.flatnonzero(weights)
            ce_rows.append(start + rows)
            ce_weights.append(weights[rows])
        if sequence.pg_mask is not None:
            rows = np.flatnonzero(np.asarray(sequence.pg_mask[1 : length + 1]))
            pg_rows.append(start + rows)
            advantages.append(np.asarray(sequence.advantages, dtype=np.float32)[rows + 1])
            logprobs.append(np.asarray(sequence.rollout_logprobs, dtype=np.float32)[rows + 1])
        if sequence.kl_mask is not None:
            rows = np.flatnonzero(np.asarray(sequence.kl_mask[1 : length + 1]))
            kl_rows.append(start + rows)
            teachers.append(np.asarray(sequence.teacher_logprobs, dtype=np.float32)[rows + 1])
    return MicroBatch(
        tokens=np.concatenate([np.asarray(s.tokens[:length], dtype=np.int64) for s, length in group]),
        labels=np.concatenate([np.asarray(s.tokens[1 : length + 1], dtype=np.int64) for s, length in group]),
        positions=np.concatenate([np.arange(length, dtype=np.int64) for length in lengths]),
        boundaries=boundaries,
        ce_rows=_ints(ce_rows),
        ce_weights=_floats(ce_weights),
        pg_rows=_ints(pg_rows),
        advantages=_floats(advantages),
        rollout_logprobs=_floats(logprobs),
        kl_rows=_ints(kl_rows),
        teacher_logprobs=np.concatenate(teachers) if teachers else None,
    )


def _ints(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _floats(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
