"""Real ranks under torchrun: two pipeline stages, asked one thing after another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import internalize
from internalize.checkpoints.digest import tensor_digests
from internalize.checkpoints.hf_names import TensorMismatchError
from internalize.engine.folder import ModelFolder
from internalize.errors import MissingPayload
from internalize.ports import free_port
from internalize.runtime.failures import WorkerLost
from internalize.runtime.group import TrainerGroup
from internalize.runtime.launch import ADDRESS, KEY
from internalize.runtime.rank import TrainerSettings
from internalize.runtime.torchrun import MODULE, TorchrunRanks
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.optimizer import OptimizerSpec
from internalize.train.trainer import NonFiniteError, ParallelSpec, Trainer

ROW = TrainSequence([1, 5, 9, 2, 7], ce_weights=[0.0, 1.0, 0.5, 0.0, 2.0])


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchrunRanks]:
    started = TorchrunRanks(2, tmp_path_factory.mktemp("log") / "ranks.log")
    yield started
    started.close()


@pytest.fixture(scope="module")
def group(ranks: TorchrunRanks, model: Path) -> TrainerGroup:
    return TrainerGroup(ranks, TrainerSettings(ModelFolder(model).config(), OptimizerSpec(), ParallelSpec(pp=2), 0))


def test_the_group_does_what_a_trainer_does(group: TrainerGroup, model: Path, tmp_path: Path) -> None:
    state = ModelFolder(model).state()
    with Trainer(ModelFolder(model).config(), OptimizerSpec()) as one:
        one.load_hf(state)
        group.load_folder(model)
        for _ in range(2):
            mine, theirs = one.train_step([ROW], LossSpec(), 1e-2), group.train_step([ROW], LossSpec(), 1e-2)
            assert theirs.loss == pytest.approx(mine.loss, abs=1e-5)
        assert group.steps == 2
        weights = group.export_hf()
        assert all(torch.allclose(weights[name], tensor, atol=1e-4) for name, tensor in one.export_hf().items())
    group.save(tmp_path / "saved", iteration=7)
    loss = group.train_step([ROW], LossSpec(), 1e-2).loss
    group.load_folder(model)
    assert group.load(tmp_path / "saved") == 7
    assert group.steps == 2
    assert group.train_step([ROW], LossSpec(), 1e-2).loss == loss
    assert group.cpu_seconds() > 0
    assert group.cpu_seconds() == 0


def test_each_stage_publishes_its_own_tensors(group: TrainerGroup, model: Path, tmp_path: Path) -> None:
    group.load_folder(model)
    written = group.publish(tmp_path)
    state = ModelFolder(model).state()
    assert (
        sorted(written)
        == sorted(path.name for path in tmp_path.iterdir())
        == [
            "model-00-0000.safetensors",
            "model-01-0000.safetensors",
        ]
    )
    assert {name: value for tensors in written.values() for name, value in tensors.items()} == tensor_digests(state)
    assert "model.norm.weight" in written["model-01-0000.safetensors"]
    half = group.publish(tmp_path / "half", "bfloat16")
    merged = {name: value for tensors in half.values() for name, value in tensors.items()}
    assert merged == tensor_digests({name: tensor.bfloat16() for name, tensor in state.items()})


def test_what_the_ranks_refuse_is_the_users_error_and_they_live_on(
    group: TrainerGroup, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(MissingPayload, match="no such checkpoint"):
        group.load(tmp_path / "nowhere")
    wrong = {name: tensor for name, tensor in ModelFolder(model).state().items() if name != "model.norm.weight"}
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "config.json").write_text((model / "config.json").read_text())
    save_file(wrong, tmp_path / "wrong" / "model.safetensors")
    with pytest.raises(TensorMismatchError, match=r"missing model\.norm\.weight"):
        group.load_folder(tmp_path / "wrong")
    broken = dict(ModelFolder(model).state())
    broken["model.layers.1.mlp.down_proj.weight"] = broken["model.layers.1.mlp.down_proj.weight"] * float("nan")
    save_file(broken, tmp_path / "wrong" / "model.safetensors")
    group.load_folder(tmp_path / "wrong")
    with pytest.raises(NonFiniteError, match=r"weight decoder\.layers\.1\.mlp\.linear_fc2"):
        group.train_step([ROW], LossSpec(), 1e-2)
    group.load_folder(model)
    assert group.train_step([ROW], LossSpec(), 0.0).loss > 0


def test_a_rank_that_dies_is_named_and_none_is_left(group: TrainerGroup, ranks: TorchrunRanks) -> None:
    os.kill(ranks.processes["rank 1"], signal.SIGKILL)
    with pytest.raises(WorkerLost, match="rank 1 died during `train_step`") as error:
        group.train_step([ROW], LossSpec(), 1e-2)
    assert "exit status -9" in error.value.got
    group.close()
    group.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.processes.values())


def test_ranks_that_cannot_start_are_an_error_with_their_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("internalize.runtime.torchrun.MODULE", "internalize.runtime.absent")
    with pytest.raises(WorkerLost, match="did not start") as error:
        TorchrunRanks(1, tmp_path / "ranks.log")
    assert error.value.where == str(tmp_path / "ranks.log")
    assert "torchrun ended with status 1" in error.value.got


DRIVER = """
import sys, time
from multiprocessing.connection import Listener
with Listener(("127.0.0.1", 0), authkey=bytes(32)) as listener:
    print(listener.address[1], flush=True)
    with listener.accept() as rank:
        rank.recv_bytes()
        print("connected", flush=True)
        time.sleep(600)
"""


def test_a_rank_ends_with_its_driver() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    environment = {
        "PYTHONPATH": str(Path(internalize.__file__).parents[1]),
        ADDRESS: f"127.0.0.1:{int(driver.stdout.readline())}",
        KEY: bytes(32).hex(),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port("127.0.0.1")),
    }
    rank = subprocess.Popen([sys.executable, "-m", MODULE], env=os.environ | environment)
    try:
        assert driver.stdout.readline() == "connected\n"
        driver.kill()
        assert rank.wait(60) == 1
    finally:
        for process in (driver, rank):
            process.kill()
            process.wait()
        driver.stdout.close()
