"""What one training rank does when the driver asks: a `Trainer`, and writing its part of the weights for engines.

Invariant: every rank is asked the same things in the same order, so their collectives meet; a `UserError` is the same
on all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor
from torch._C._distributed_c10d import Store

from internalize.checkpoints import hf_names
from internalize.checkpoints.digest import tensor_digest
from internalize.engine.folder import ModelFolder
from internalize.files import commit
from internalize.runtime.called import Called
from internalize.train import shards
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.mcore import parallel_state
from internalize.train.optimizer import OptimizerSpec
from internalize.train.trainer import ParallelSpec, StepStats, Trainer

COLLECTIVE_SECONDS = 1800.0
"""A rank that waits longer for another gives up; a dead one is noticed at once, this is for one that hangs."""
FILE_BYTES = 2 << 30
"""Weights in one published file, at most (a larger tensor has a file of its own)."""


@dataclass(frozen=True)
class TrainerSettings:
    """What a trainer is built from; the same on every rank."""

    model_config: dict[str, Any]
    optimizer: OptimizerSpec
    parallel: ParallelSpec
    seed: int
    max_tokens: int = 8192

    def trainer(self) -> Trainer:
        """The trainer (or this rank's part of it)."""
        return Trainer(self.model_config, self.optimizer, self.parallel, self.seed, self.max_tokens)


def join(store: Store | None, rank: int, ranks: int, seconds: float = COLLECTIVE_SECONDS) -> None:
    """Makes the process group; `store` None: from torchrun's environment."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=seconds),
    )


class Rank(Called):
    """One rank; its process group exists (`join`) before `build`."""

    def __init__(self) -> None:
        self._trainer: Trainer | None = None

    @property
    def trainer(self) -> Trainer:
        """Built before."""
        assert self._trainer is not None
        return self._trainer

    def build(self, settings: TrainerSettings) -> None:
        """Makes the trainer."""
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        with shards.together():
            self._trainer = settings.trainer()

    def load_folder(self, folder: Path) -> None:
        """Takes the weights of a model folder, with fresh moments."""
        with shards.together():
            self.trainer.load_hf(ModelFolder(folder).state())

    def load(self, folder: Path) -> tuple[int, int]:
        """See `Trainer.load`; also the number of optimizer steps so far."""
        with shards.together():
            return self.trainer.load(folder), self.trainer.steps

    def save(self, folder: Path, iteration: int) -> None:
        """See `Trainer.save`."""
        self.trainer.save(folder, iteration=iteration)

    def reset_optimizer(self) -> None:
        """See `Trainer.reset_optimizer`."""
        self.trainer.reset_optimizer()

    def train_step(self, sequences: Sequence[TrainSequence], loss: LossSpec, lr: float | None) -> tuple[StepStats, int]:
        """See `Trainer.train_step`; also the number of optimizer steps so far."""
        stats = self.trainer.train_step(sequences, loss, lr)
        return stats, self.trainer.steps

    def logprobs(self, sequences: Sequence[Sequence[int]], temperature: float) -> list[list[float]]:
        """See `Trainer.logprobs`."""
        return self.trainer.logprobs(sequences, temperature)

    def export_hf(self) -> dict[str, Tensor] | None:
        """The whole model, on rank 0 alone."""
        state = self.trainer.export_hf()
        return state if dist.get_rank() == 0 else None

    def offload(self) -> None:
        """See `Trainer.offload`."""
        self.trainer.offload()

    def onload(self) -> None:
        """See `Trainer.onload`."""
        self.trainer.onload()

    def publish(self, folder: Path, dtype: str) -> dict[str, dict[str, str]]:
        """Writes the tensors of this rank's pipeline stage into `folder`, as a HF model names them; file -> tensor ->
        hash. One rank a stage writes, the others only send their parts to it.

        Raises:
            UserError: the file system refused the write.
        """
        config, kind = self.trainer.model_config, getattr(torch, dtype)
        writes = parallel_state.get_tensor_model_parallel_rank() == 0 and parallel_state.get_data_parallel_rank() == 0
        stage, written = parallel_state.get_pipeline_model_parallel_rank(), dict[str, dict[str, str]]()
        waiting: dict[str, Tensor] = {}

        def flush() -> None:
            name = f"model-{stage:02d}-{len(written):04d}.safetensors"
            commit(folder / name, lambda path: save_file(waiting, path))
            written[name] = {tensor: tensor_digest(value) for tensor, value in waiting.items()}
            waiting.clear()

        with shards.together():
            for entry, tensor in shards.whole_tensors(self.trainer.model, config, mine=True):
                if not writes:
                    continue
                size = sum(value.nbytes for value in waiting.values())
                if waiting and size + tensor.numel() * kind.itemsize > FILE_BYTES:
                    flush()
                for name, part in zip(entry.hf, hf_names.split(entry, tensor, config), strict=True):
                    waiting[name] = part.to(device="cpu", dtype=kind, copy=True).contiguous()
            if waiting:
                flush()
        return written
