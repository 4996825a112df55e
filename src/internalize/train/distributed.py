"""The process group and Megatron's model-parallel state, shared by all trainers of a process.

Invariant: what exists already is used and left alone; what was created here is destroyed when its last user
closes. A single process needs no port and no environment variable: its store lives in memory. A rank of many is
started by `runtime.launch` (or inside a Ray actor), which makes the group before the first trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from internalize.errors import UserError
from internalize.train.mcore import parallel_state

Precision = Literal["fp32", "bf16"]

_users = 0
_owns_group = False
_owns_parallel = False


@dataclass(frozen=True)
class ParallelSpec:
    """Sizes of the tensor- and pipeline-parallel groups; data parallelism is what remains of the world.

    Args:
        recompute: activations are computed anew in the backward pass: less memory, a third more arithmetic, the same
            result.
        sequence_parallel: norms and residuals are split along the sequence inside a tensor-parallel group (CUDA and
            Transformer Engine only).
        distributed_optimizer: moments are split over data-parallel ranks (CUDA only).
        precision: of weights and activations. With `bf16` the optimizer holds master weights and moments in float32,
            and gradients are added up in float32.
    """

    tp: int = 1
    pp: int = 1
    recompute: bool = False
    sequence_parallel: bool = False
    distributed_optimizer: bool = False
    precision: Precision = "fp32"


def acquire(parallel: ParallelSpec) -> None:
    """Makes the process group and the model-parallel groups exist. Pair with ``release``.

    Raises:
        UserError: groups of other sizes exist already in this process, or the world does not divide.
    """
    global _users, _owns_group, _owns_parallel
    _refuse_without_cuda(parallel)
    if not dist.is_initialized():
        if parallel.tp * parallel.pp > 1:
            raise UserError(
                "a parallel trainer needs a process group",
                expected=f"torch.distributed over a multiple of {parallel.tp * parallel.pp} processes",
                got="one process and no group",
                fix="start its ranks with `torchrun -m internalize.runtime.launch`, or use tp: 1, pp: 1",
            )
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        _owns_group = True
    if not parallel_state.model_parallel_is_initialized():
        if dist.get_world_size() % (parallel.tp * parallel.pp):
            raise UserError(
                "the ranks cannot be divided into model-parallel groups",
                expected=f"a multiple of {parallel.tp * parallel.pp} ranks",
                got=f"{dist.get_world_size()}",
            )
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=parallel.tp,
            pipeline_model_parallel_size=parallel.pp,
            create_gloo_process_groups=False,
        )
        _owns_parallel = True
    have = (
        parallel_state.get_tensor_model_parallel_world_size(),
        parallel_state.get_pipeline_model_parallel_world_size(),
    )
    if have != (parallel.tp, parallel.pp):
        raise UserError(
            "this process already trains at another parallel shape",
            expected=f"tp {parallel.tp}, pp {parallel.pp}",
            got=f"tp {have[0]}, pp {have[1]}",
            fix="close the other trainer first, or use one process a shape",
        )
    _users += 1


def release() -> None:
    """Ends one use; the last one destroys what ``acquire`` created."""
    global _users, _owns_group, _owns_parallel
    _users -= 1
    if _users > 0:
        return
    if _owns_parallel:
        parallel_state.destroy_model_parallel()
        _owns_parallel = False
    if _owns_group:
        dist.destroy_process_group()
        _owns_group = False


def _refuse_without_cuda(parallel: ParallelSpec) -> None:
    for name in ("sequence_parallel", "distributed_optimizer"):
        if getattr(parallel, name) and not torch.cuda.is_available():
            raise UserError(
                f"{name} needs CUDA",
                expected="a GPU on every rank" + (" with Transformer Engine" if name == "sequence_parallel" else ""),
                got="no CUDA device",
                fix=f"set parallel.{name}: false",
            )
