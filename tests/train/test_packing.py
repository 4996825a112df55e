from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_examples import ce_sequence, kl_sequence, pg_sequence

from internalize.train.batch import TrainSequence
from internalize.train.packing import MicroBatch, pack

Key = tuple[tuple[int, ...], int]


def supervision(batches: list[MicroBatch]) -> dict[str, list[tuple[Key, tuple[float, ...]]]]:
    """What is trained, described without reference to packing: (history, target) -> numbers, in order."""
    found: dict[str, list[tuple[Key, tuple[float, ...]]]] = {"ce": [], "pg": [], "kl": []}
    for batch in batches:

        def key(row: int, batch: MicroBatch = batch) -> Key:
            start = row - int(batch.positions[row])
            assert start in batch.boundaries[:-1]
            return tuple(batch.tokens[start : row + 1].tolist()), int(batch.labels[row])

        for i, row in enumerate(batch.ce_rows):
            found["ce"].append((key(int(row)), (float(batch.ce_weights[i]),)))
        for i, row in enumerate(batch.pg_rows):
            found["pg"].append((key(int(row)), (float(batch.advantages[i]), float(batch.rollout_logprobs[i]))))
        for i, row in enumerate(batch.kl_rows):
            found["kl"].append((key(int(row)), tuple(batch.teacher_logprobs[i].tolist())))
    return found


def wanted(sequences: list[TrainSequence]) -> dict[str, list[tuple[Key, tuple[float, ...]]]]:
    """The same from the sequences themselves; policy tokens after the last gradient need no row."""
    found: dict[str, list[tuple[Key, tuple[float, ...]]]] = {"ce": [], "pg": [], "kl": []}
    f = np.float32
    for s in sequences:
        for t in range(1, s.last_trained + 1):
            key = tuple(s.tokens[:t]), s.tokens[t]
            if s.ce_weights is not None and s.ce_weights[t]:
                found["ce"].append((key, (float(f(s.ce_weights[t])),)))
            if s.pg_mask is not None and s.pg_mask[t]:
                found["pg"].append((key, (float(f(s.advantages[t])), float(f(s.rollout_logprobs[t])))))
            if s.kl_mask is not None and s.kl_mask[t]:
                found["kl"].append((key, tuple(f(s.teacher_logprobs[t]).tolist())))
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.sampled_from("cpzk"), st.integers(2, 30)), max_size=12),
    st.integers(1, 80),
)
def test_packing_keeps_every_history_target_and_number(seed: int, shapes: list[tuple[str, int]], cap: int) -> None:
    rng = np.random.default_rng(seed)
    make = {
        "c": lambda n: ce_sequence(rng, n),
        "p": lambda n: pg_sequence(rng, n, 0.5, "a"),
        "z": lambda n: pg_sequence(rng, n, 0.0, "b"),
        "k": lambda n: kl_sequence(rng, n),
    }
    sequences = [make[kind](n) for kind, n in shapes]
    batches = pack(sequences, cap)
    assert supervision(batches) == wanted(sequences)
    for batch in batches:
        assert batch.size <= cap or len(batch.boundaries) == 2
        assert batch.boundaries[0] == 0
        assert batch.boundaries[-1] == batch.size
        assert (np.diff(batch.boundaries) > 0).all()
        lengths = np.diff(batch.boundaries)
        assert batch.positions.tolist() == [i for n in lengths for i in range(n)]


def test_nothing_to_train_makes_no_batch() -> None:
    rng = np.random.default_rng(0)
    assert pack([], 10) == []
    assert pack([TrainSequence([1, 2, 3]), pg_sequence(rng, 9, 0.0, "a")], 10) == []


def test_tokens_after_the_last_trained_one_are_not_computed() -> None:
    (batch,) = pack([TrainSequence([5, 6, 7, 8, 9], [0.0, 0.0, 1.0, 0.0, 0.0])], 100)
    assert batch.tokens.tolist() == [5, 6]
    assert batch.labels.tolist() == [6, 7]
    assert batch.ce_rows.tolist() == [1]


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        pack([], 0)
