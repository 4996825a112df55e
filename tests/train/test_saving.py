"""Checkpoints of a trainer: continue bit for bit, equal bytes for equal states, readable by Megatron."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_examples import ce_sequence, pg_sequence

import internalize
from internalize import files
from internalize.checkpoints.torch_dist import TorchDist, load_common, read_hf
from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.mcore import dist_checkpointing
from internalize.train.shim import cpu_stand_ins
from internalize.train.trainer import CheckpointMismatchError, Trainer

PARTS = {".metadata", "__0_0.distcp", "common.pt", "metadata.json"}


def batches(n: int) -> Iterator[list[TrainSequence]]:
    rng = np.random.default_rng(0)
    for i in range(n):
        yield [ce_sequence(rng, 12), pg_sequence(rng, 20, 0.5, f"a{i}"), pg_sequence(rng, 9, -0.5, f"b{i}")]


def train(trainer: Trainer, work: list[list[TrainSequence]]) -> list[float]:
    return [trainer.train_step(batch, LossSpec(), lr=1e-2 / (1 + i)).loss for i, batch in enumerate(work)]


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: files.sha256_file(path) for path in folder.iterdir()}


def test_stop_and_continue_equals_not_stopping_down_to_the_bytes(make_trainer: Any, tmp_path: Path) -> None:
    work = list(batches(5))
    straight = make_trainer(weight_decay=0.01)
    train(straight, work[:3])
    straight.save(tmp_path / "three", iteration=3)
    resumed = make_trainer(weight_decay=0.01, seed=9)
    train(resumed, work[4:])  # a trainer with a past of its own
    assert resumed.load(tmp_path / "three") == 3
    assert resumed.steps == 3
    assert train(resumed, work[3:]) == train(straight, work[3:])
    resumed.seed = straight.seed  # the one setting that the two were built with differently
    straight.save(tmp_path / "straight", iteration=5)
    resumed.save(tmp_path / "another name", iteration=5)
    assert hashes(tmp_path / "straight") == hashes(tmp_path / "another name")
    assert set(hashes(tmp_path / "straight")) == PARTS


def test_moments_matter_and_can_be_left_behind(make_trainer: Any, tmp_path: Path) -> None:
    work = list(batches(4))
    first = make_trainer()
    train(first, work[:2])
    first.save(tmp_path / "c")
    weights = first.export_hf()
    boundary, fresh = make_trainer(seed=5), make_trainer(weights)
    boundary.load(tmp_path / "c")
    boundary.reset_optimizer()
    assert train(boundary, work[2:]) == train(fresh, work[2:]) != train(first, work[2:])


def test_a_state_without_moments_is_saved_and_loaded(make_trainer: Any, tmp_path: Path) -> None:
    work = list(batches(3))
    first, second = make_trainer(), make_trainer(seed=1)
    train(first, work[:1])
    first.reset_optimizer()
    first.save(tmp_path / "c", iteration=1)
    train(second, work[:1])
    second.load(tmp_path / "c")
    assert train(first, work[1:]) == train(second, work[1:])


OTHER_PROCESS = """
import sys, torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from internalize.train.trainer import OptimizerSpec, Trainer
from test_saving import batches, train
from training_examples import CONFIG
with Trainer(CONFIG, OptimizerSpec()) as trainer:
    train(trainer, list(batches(2)))
    trainer.save(Path(sys.argv[1]), iteration=2)
"""


def test_another_process_writes_the_same_bytes_and_says_nothing(make_trainer: Any, tmp_path: Path) -> None:
    trainer = make_trainer()
    train(trainer, list(batches(2)))
    trainer.save(tmp_path / "here", iteration=2)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(internalize.__file__).parents[1]),
        "PYTHONHASHSEED": "77",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "there"), str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert hashes(tmp_path / "here") == hashes(tmp_path / "there")


def test_megatron_reads_it_and_agrees_with_our_reader(
    make_trainer: Any, config: dict[str, Any], tmp_path: Path
) -> None:
    trainer = make_trainer()
    train(trainer, list(batches(2)))
    trainer.save(tmp_path / "c", iteration=7)
    assert dist_checkpointing.check_is_distributed_checkpoint(str(tmp_path / "c"))
    with cpu_stand_ins():
        theirs = dist_checkpointing.load_plain_tensors(str(tmp_path / "c"))
    with TorchDist(tmp_path / "c") as ours:
        names = ours.tensors()
        assert any(name.startswith("optimizer.state.exp_avg_sq.decoder") for name in names)
        assert names == {k: tuple(v.shape) for k, v in theirs.items() if isinstance(v, torch.Tensor)}
        assert all(torch.equal(ours.read(name), theirs[name]) for name in names)
        assert torch.equal(
            ours.read("decoder.layers.mlp.linear_fc1.weight", 1),
            theirs["decoder.layers.mlp.linear_fc1.weight"][1],
        )
    common = load_common(tmp_path / "c")
    assert common["iteration"] == 7
    assert common["args"]["steps"] == 2
    assert float(common["optimizer"]["state"]["common_step"]) == 2
    exported, read = trainer.export_hf(), read_hf(tmp_path / "c", config)
    assert list(exported) == list(read)
    assert all(torch.equal(exported[name], read[name]) for name in exported)


def test_our_reader_reads_what_megatrons_stock_strategy_writes(
    make_trainer: Any, config: dict[str, Any], tmp_path: Path
) -> None:
    trainer = make_trainer()
    train(trainer, list(batches(1)))
    (tmp_path / "c").mkdir()
    with cpu_stand_ins():
        dist_checkpointing.save(trainer._state(4, moments=True), str(tmp_path / "c"))
    exported, read = trainer.export_hf(), read_hf(tmp_path / "c", config)
    assert all(torch.equal(exported[name], read[name]) for name in exported)
    resumed = make_trainer(seed=1)
    assert resumed.load(tmp_path / "c") == 4
    work = list(batches(3))[1:]
    assert train(resumed, work) == train(trainer, work)


def test_saving_starts_no_process(make_trainer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(multiprocessing.Process, "start", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    make_trainer().save(tmp_path / "c")
    assert set(hashes(tmp_path / "c")) == PARTS


def test_another_model_or_optimizer_is_refused_by_key(
    make_trainer: Any, config: dict[str, Any], tmp_path: Path
) -> None:
    trainer = make_trainer()
    train(trainer, list(batches(1)))
    trainer.save(tmp_path / "c")
    with pytest.raises(CheckpointMismatchError) as error:
        make_trainer(betas=(0.9, 0.999)).load(tmp_path / "c")
    assert "optimizer.betas" in error.value.where
    for key, value in (("num_hidden_layers", 3), ("rope_theta", 1e6)):
        before = config[key]
        config[key] = value
        with pytest.raises(CheckpointMismatchError) as error:
            make_trainer().load(tmp_path / "c")
        assert f"model_config.{key}" in error.value.where
        assert (error.value.got, error.value.expected) == (repr(before), repr(value))
        config[key] = before


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_missing_or_damaged_part_is_named(make_trainer: Any, tmp_path: Path, part: str) -> None:
    trainer = make_trainer()
    train(trainer, list(batches(1)))
    trainer.save(tmp_path / "c")
    path = tmp_path / "c" / part
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptPayload) as error:
        trainer.load(tmp_path / "c")
    assert part in str(error.value)
    path.unlink()
    with pytest.raises(MissingPayload) as missing:
        trainer.load(tmp_path / "c")
    assert missing.value.where == str(path)
    assert missing.value.fix
    path.write_bytes(whole)
    trainer.load(tmp_path / "c")
    train(trainer, list(batches(1)))


def test_an_absent_checkpoint_is_no_fresh_start(make_trainer: Any, tmp_path: Path) -> None:
    with pytest.raises(MissingPayload, match="no such checkpoint"):
        make_trainer().load(tmp_path / "nowhere")


@pytest.mark.parametrize("room", [500, 2000, 100_000])
def test_a_full_disk_is_a_user_error(make_trainer: Any, tmp_path: Path, room: int) -> None:
    """A limit on file size stands in for the full disk: writes fail with an OSError of the kernel."""
    trainer = make_trainer()
    train(trainer, list(batches(1)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(UserError, match="cannot write") as error:
            trainer.save(tmp_path / "c")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(tmp_path / "c") in error.value.where
    with pytest.raises((MissingPayload, CorruptPayload)):
        trainer.load(tmp_path / "c")
    trainer.save(tmp_path / "again")
    assert set(hashes(tmp_path / "again")) == PARTS
