"""bf16: Megatron's own types and optimizer, float32 master weights that outlive save and load, losses near fp32's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_examples import CONFIG, ce_sequence, pg_sequence, random_weights

from internalize.checkpoints.torch_dist import TorchDist, read_hf
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.model import transformer_config
from internalize.train.state import CheckpointMismatchError
from internalize.train.trainer import OptimizerSpec, ParallelSpec, Trainer

HALF = ParallelSpec(precision="bf16")


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[Trainer] = []

    def trainer(parallel: ParallelSpec = HALF, **options: Any) -> Trainer:
        made.append(Trainer(CONFIG, OptimizerSpec(**options), parallel))
        made[-1].load_hf(random_weights(CONFIG, 0))
        return made[-1]

    yield trainer
    for one in made:
        one.close()


def batches(count: int) -> list[list[TrainSequence]]:
    draws = [np.random.default_rng(step) for step in range(count)]
    return [[ce_sequence(draw, 20), pg_sequence(draw, 14, 0.5, "a")] for draw in draws]


def train(trainer: Trainer, work: list[list[TrainSequence]], lr: float = 1e-3) -> list[float]:
    return [trainer.train_step(batch, LossSpec(), lr).loss for batch in work]


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_megatrons_config_says_so(precision: Any, dtype: torch.dtype) -> None:
    config = transformer_config(CONFIG, ParallelSpec(tp=2, pp=2, precision=precision))
    assert (config.bf16, config.fp16) == (precision == "bf16", False)
    assert config.params_dtype == config.pipeline_dtype == dtype


def test_weights_are_halves_and_everything_that_adds_up_is_not(make: Any) -> None:
    trainer = make()
    (inner,) = trainer.optimizer.chained_optimizers
    assert type(inner).__name__ == "Float16OptimizerWithFloat16Params"
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.bfloat16}
    assert {buffer.grad_data.dtype for buffer in trainer._ddp.buffers} == {torch.float32}
    train(trainer, batches(1))
    masters = [parameter for group in inner.optimizer.param_groups for parameter in group["params"]]
    moments = [state["exp_avg_sq"] for state in inner.optimizer.state.values()]
    assert {tensor.dtype for tensor in (*masters, *moments)} == {torch.float32}
    assert len(masters) == len(moments) == len(list(trainer.model.parameters()))
    exported = trainer.export_hf()
    assert {tensor.dtype for tensor in exported.values()} == {torch.bfloat16}


def test_losses_are_those_of_fp32_within_its_rounding(make: Any) -> None:
    half, full = train(make(), batches(4)), train(make(ParallelSpec()), batches(4))
    assert half != full
    assert half == pytest.approx(full, rel=0.02)


def test_updates_below_the_rounding_of_a_weight_add_up(make: Any) -> None:
    """A step of 1e-5 is lost in a bf16 weight of 0.3 (spacing 1e-3) and kept in its master."""
    trainer = make(clip_grad=0.0)
    before = trainer.export_hf()
    work = batches(1)
    train(trainer, work, 1e-5)
    once = sum(int((tensor != before[name]).sum()) for name, tensor in trainer.export_hf().items())
    train(trainer, work * 60, 1e-5)
    often = sum(int((tensor != before[name]).sum()) for name, tensor in trainer.export_hf().items())
    assert often > 10 * max(once, 1)


@pytest.mark.parametrize("taken", [0, 2])
def test_stopping_changes_nothing_with_or_without_moments(make: Any, tmp_path: Path, taken: int) -> None:
    work = batches(4)
    first, second = make(), make()
    train(first, work[:taken], 1e-5)
    first.save(tmp_path / "c", iteration=3)
    train(second, work[2:])  # whatever it held before
    assert second.load(tmp_path / "c") == 3
    assert train(second, work[2:], 1e-5) == train(first, work[2:], 1e-5)
    for trainer, name in ((first, "a"), (second, "b")):
        trainer.save(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert [(tmp_path / "a" / n).read_bytes() for n in files] == [(tmp_path / "b" / n).read_bytes() for n in files]


def test_master_weights_outlive_a_reset(make: Any, tmp_path: Path) -> None:
    first, second = make(), make()
    train(first, batches(2), 1e-5)
    first.reset_optimizer()
    first.save(tmp_path / "c")
    second.load(tmp_path / "c")
    assert train(second, batches(3), 1e-5) == train(first, batches(3), 1e-5)


def test_the_checkpoint_is_megatrons_and_converts(make: Any, tmp_path: Path) -> None:
    trainer = make()
    train(trainer, batches(1))
    trainer.save(tmp_path / "c")
    with TorchDist(tmp_path / "c") as checkpoint:
        names = checkpoint.tensors()
        assert checkpoint.index.tensors["decoder.layers.mlp.linear_fc2.weight"].dtype == torch.bfloat16
        assert checkpoint.index.tensors["optimizer.state.fp32_param.decoder.layers.mlp.linear_fc2.weight"].dtype == (
            torch.float32
        )
    assert sum(name.startswith("optimizer.state.exp_avg_sq.") for name in names) == len(names) // 4
    exported = trainer.export_hf()
    assert all(torch.equal(tensor, exported[name]) for name, tensor in read_hf(tmp_path / "c", CONFIG).items())


def test_another_precision_is_refused(make: Any, tmp_path: Path) -> None:
    half, full = make(), make(ParallelSpec())
    train(full, batches(1))
    for trainer, other, name in ((half, full, "half"), (full, half, "full")):
        trainer.save(tmp_path / name)
        with pytest.raises(CheckpointMismatchError) as error:
            other.load(tmp_path / name)
        assert error.value.where.endswith("optimizer.precision")
