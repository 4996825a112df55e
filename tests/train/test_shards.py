from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_examples import ce_sequence

from internalize.errors import UserError
from internalize.train.distributed import ParallelSpec, acquire
from internalize.train.losses import LossSpec
from internalize.train.model import ModelConfigError, check_divides
from internalize.train.shards import share


@given(lengths=st.lists(st.integers(2, 60), max_size=20), ranks=st.integers(1, 5))
def test_shares_are_a_balanced_partition_in_batch_order(lengths: list[int], ranks: int) -> None:
    batch = [ce_sequence(np.random.default_rng(i), n, str(i)) for i, n in enumerate(lengths)]
    shares = [share(batch, rank, ranks) for rank in range(ranks)]
    assert sorted(int(s.episode) for part in shares for s in part) == list(range(len(batch)))
    assert all([int(s.episode) for s in part] == sorted(int(s.episode) for s in part) for part in shares)
    loads = [sum(s.last_trained for s in part) for part in shares]
    assert max(loads) - min(loads) <= max(lengths, default=0)


@pytest.mark.parametrize(
    ("key", "parallel", "word"),
    [
        ("num_key_value_heads", ParallelSpec(tp=4), "parallel.tensor"),
        ("vocab_size", ParallelSpec(tp=2), "parallel.tensor"),
        ("num_hidden_layers", ParallelSpec(pp=4), "parallel.pipeline"),
    ],
)
def test_a_shape_that_does_not_divide_the_model_is_refused_by_key(
    config: dict[str, Any], key: str, parallel: ParallelSpec, word: str
) -> None:
    config |= {"vocab_size": 41} if key == "vocab_size" else {"num_attention_heads": 8}
    with pytest.raises(ModelConfigError) as error:
        check_divides(config, parallel)
    assert error.value.where == f"config.json: {key}"
    assert word in error.value.fix


@pytest.mark.parametrize("word", ["sequence_parallel", "distributed_optimizer"])
def test_what_needs_cuda_says_so(word: str) -> None:
    with pytest.raises(UserError, match="needs CUDA") as error:
        acquire(ParallelSpec(**{word: True}))
    assert f"parallel.{word}: false" in error.value.fix


def test_offloading_frees_the_gradients_and_training_goes_on(make_trainer: Any, weights: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    work = [[ce_sequence(rng, 12)] for _ in range(3)]
    straight, other = make_trainer(weights), make_trainer(weights)
    for trainer in (straight, other):
        trainer.train_step(work[0], LossSpec())
    other.offload()
    assert all(buffer.grad_data.untyped_storage().size() == 0 for buffer in other._ddp.buffers)
    other.onload()
    assert [other.train_step(b, LossSpec()) for b in work[1:]] == [straight.train_step(b, LossSpec()) for b in work[1:]]
