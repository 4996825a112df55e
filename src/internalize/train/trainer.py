"""The trainer: Megatron's model, schedule, optimizer and checkpoints behind one small class.

Invariant: a step is a function of (weights, moments, batch, loss, learning rate). Nothing else enters: no
global random state, no folder name, no history of the process; so save + load + continue equals not having
stopped, bit for bit.

Each gradient is divided by its own normaliser before it reaches Megatron, which is told that the step has 0
tokens; then Megatron sums over micro-batches and data-parallel ranks and rescales nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from internalize.checkpoints import hf_names
from internalize.checkpoints.torch_dist import VERSION, load_common
from internalize.train import distributed, saving, shards
from internalize.train.batch import TrainSequence
from internalize.train.distributed import ParallelSpec
from internalize.train.forward import forward_step, run_schedule
from internalize.train.logprobs import token_logprobs
from internalize.train.losses import LossSpec, normalisers
from internalize.train.mcore import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    Float16Module,
    ShardedObject,
    finalize_model_grads,
    parallel_state,
)
from internalize.train.model import build_model
from internalize.train.optimizer import (
    OptimizerSpec,
    build_optimizer,
    fill_moments,
    has_moments,
    reset_moments,
    set_learning_rate,
)
from internalize.train.packing import idle, pack
from internalize.train.shim import cpu_stand_ins, use_cpu_rng_tracker
from internalize.train.state import CheckpointMismatchError, holds_optimizer, refuse_other, settings
from internalize.train.stats import NonFiniteError, StepStats, add_up, counts, refuse_non_finite, severity, step_stats

__all__ = [
    "CheckpointMismatchError",
    "LossSpec",
    "NonFiniteError",
    "OptimizerSpec",
    "ParallelSpec",
    "StepStats",
    "TrainSequence",
    "Trainer",
]


class Trainer:
    """One model with its optimizer. Close it (or use it as a context manager) to free the process group.

    Args:
        model_config: HF config.json of a Qwen3-type model.
        optimizer: AdamW settings.
        parallel: sizes of the parallel groups.
        seed: of the initial weights.
        max_tokens: input tokens a micro-batch; bounds memory, not results.

    Raises:
        ModelConfigError: the config asks for something else than this model.
        UserError: the ranks cannot provide the parallel shape.
    """

    def __init__(
        self,
        model_config: Mapping[str, Any],
        optimizer: OptimizerSpec | None = None,
        parallel: ParallelSpec | None = None,
        seed: int = 0,
        max_tokens: int = 8192,
    ) -> None:
        self.model_config = dict(model_config)
        self.optimizer_spec = optimizer or OptimizerSpec()
        self.parallel = parallel or ParallelSpec()
        self.seed = seed
        self.max_tokens = max_tokens
        self.steps = 0  # optimizer steps since the build or the last load_hf
        self._lr = self.optimizer_spec.lr
        distributed.acquire(self.parallel)
        self._closed = False
        try:
            self._rng = torch.Generator().manual_seed(seed).get_state()
            use_cpu_rng_tracker()
            with cpu_stand_ins(), self._own_rng():
                config, self.model = build_model(self.model_config, self.parallel)
                split = self.parallel.distributed_optimizer
                ddp_config = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=split)
                wrapped = Float16Module(config, self.model) if config.bf16 else self.model
                self._ddp = DistributedDataParallel(config, ddp_config, wrapped)
                self.optimizer = build_optimizer(self.optimizer_spec, self._ddp, split)
            config.no_sync_func = self._ddp.no_sync
            config.finalize_model_grads_func = finalize_model_grads
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees the process group if no other trainer uses it; idempotent."""
        if not self._closed:
            self._closed = True
            distributed.release()

    # Weights

    def load_hf(self, state: Mapping[str, Tensor]) -> None:
        """Takes the weights of an HF state dict and starts with fresh moments and step count.

        Raises:
            hf_names.TensorMismatchError: the state is not exactly this model's.
        """
        shards.place(state, self.model, self.model_config)
        self.optimizer.reload_model_params()
        self.reset_optimizer()
        self.steps = 0

    def export_hf(self) -> dict[str, Tensor]:
        """The weights as an HF state dict of own copies, in the type that is trained in; whole on every rank, so all
        ranks call it."""
        tensors = {entry.module: tensor for entry, tensor in shards.whole_tensors(self.model, self.model_config)}
        return hf_names.from_megatron(tensors, self.model_config)

    def offload(self) -> None:
        """Gives memory to an engine on the same device: gradient buffers are freed, weights and moments go to the
        host. Only `onload` may follow (weights can be exported before).
        """
        with cpu_stand_ins():
            self._ddp.offload_grad_buffers()
            self.optimizer.offload_to_cpu()

    def onload(self) -> None:
        """Takes the memory back; training goes on as if nothing had been."""
        with cpu_stand_ins():
            self._ddp.restore_grad_buffers()
            if torch.cuda.is_available():
                self.optimizer.restore_from_cpu()

    # Training

    def reset_optimizer(self) -> None:
        """Forgets the Adam moments and their step count; equal to a new optimizer on the same weights."""
        reset_moments(self.optimizer)

    def train_step(self, sequences: Sequence[TrainSequence], loss: LossSpec, lr: float | None = None) -> StepStats:
        """One optimizer step on the whole batch; every rank passes the same batch and computes its share.

        Sequences with nothing to train (zero-variance groups) are not computed; if none is left, no step is
        taken.

        Args:
            sequences: the optimizer batch, any mix of CE, policy and KL tokens.
            loss: clip range, temperature and normalisers.
            lr: learning rate of this step; default is the optimizer's.

        Raises:
            NonFiniteError: names the first weight, loss or gradient that is not finite; nothing was updated.
        """
        trained = [sequence for sequence in sequences if sequence.last_trained]
        if not trained:
            return StepStats(skipped=True)
        norm = normalisers(sequences, loss)
        rank, ranks = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
        batches = pack(shards.share(trained, rank, ranks), self.max_tokens)
        counted = counts(batches)
        batches = batches or [idle()]
        with cpu_stand_ins(), self._own_rng():
            self._ddp.zero_grad_buffer()
            self.optimizer.zero_grad()
            totals = add_up(run_schedule(functools.partial(forward_step, loss, norm), batches, self._ddp))
            buffers = [buffer.grad_data for buffer in self._ddp.buffers]
            with shards.together(severity):
                refuse_non_finite(totals, buffers, shards.global_parameters(self.model), self.steps + 1)
            self._lr = self.optimizer_spec.lr if lr is None else lr
            set_learning_rate(self.optimizer, self._lr)
            _, grad_norm, _ = self.optimizer.step()
        self.steps += 1
        *sums_of_all, tokens, policy = shards.add_over_ranks([*totals.values(), *counted])
        totals = dict(zip(totals, sums_of_all, strict=True))
        return step_stats(totals, float(grad_norm), int(tokens), int(policy))

    def logprobs(self, sequences: Sequence[Sequence[int]], temperature: float = 1.0) -> list[list[float]]:
        """See `logprobs.token_logprobs`."""
        return token_logprobs(self._ddp, sequences, temperature, self.max_tokens)

    # Checkpoints

    def save(self, folder: Path, *, iteration: int = 0) -> None:
        """Writes weights, moments, step count, learning rate and RNG state in Megatron's torch_dist layout.

        Args:
            folder: empty or absent; the caller renames it into place.
            iteration: number that the checkpoint carries.

        Raises:
            UserError: the file system refused a write.
        """
        with cpu_stand_ins(), shards.together():  # all parts are durable when any rank returns
            moments, masters = has_moments(self.optimizer), self.parallel.precision == "bf16"
            if masters and not moments:
                fill_moments(self.optimizer)
            saving.save(self._state(iteration, moments, masters), folder)
            if not moments:
                self.reset_optimizer()

    def load(self, folder: Path) -> int:
        """Restores what ``save`` wrote; returns its iteration.

        A checkpoint without optimizer state (a converted model) gives its weights alone, whatever type they have.

        Args:
            folder: an ``iter_*`` folder.

        Raises:
            MissingPayload, CorruptPayload: the folder is incomplete or damaged.
            CheckpointMismatchError: it belongs to another model config or to other optimizer settings; names the
                key.
        """
        common = load_common(folder)
        args = common.get("args", {})
        moments, optimizer = bool(args.get("has_moments")), holds_optimizer(args)
        refuse_other(folder, args, self._settings(), optimizer)
        sizes = (args.get("pipeline_model_parallel_size"), args.get("tensor_model_parallel_size"))
        with cpu_stand_ins():
            wanted = self._state(0, moments, optimizer, loading=True)
            if sizes != (self.parallel.pp, self.parallel.tp):
                del wanted["rng_state"]  # one generator a rank of another shape; nothing draws from it: dropout is 0
            state = saving.load(wanted, folder)
            self.model.load_state_dict(state["model"], strict=True)
            if optimizer:
                self.optimizer.load_state_dict(state["optimizer"])
            else:
                self.optimizer.reload_model_params()
            if not moments:
                self.reset_optimizer()
        if "rng_state" in state:
            self._rng = state["rng_state"]["torch_rng_state"]
        self._lr = float(args["lr"])
        self.steps = int(args["steps"])
        return int(common["iteration"])

    def _settings(self) -> dict[str, Any]:
        return settings(self.model_config, self.optimizer_spec, self.parallel.precision)

    def _state(self, iteration: int, moments: bool, masters: bool = False, loading: bool = False) -> dict[str, Any]:
        model = self.model.sharded_state_dict()
        tp_rank = parallel_state.get_tensor_model_parallel_rank()
        pp_rank = parallel_state.get_pipeline_model_parallel_rank()
        state: dict[str, Any] = {
            "args": {
                **self._settings(),
                "tensor_model_parallel_size": self.parallel.tp,
                "pipeline_model_parallel_size": self.parallel.pp,
                "seed": self.seed,
                "steps": self.steps,
                "lr": self._lr,
                "has_moments": moments,
            },
            "checkpoint_version": VERSION,
            "iteration": iteration,
            "model": model,
            "rng_state": ShardedObject(
                "rng_state",
                {"torch_rng_state": self._rng},
                (self.parallel.pp, self.parallel.tp),
                (pp_rank, tp_rank),
                replica_id=parallel_state.get_data_parallel_rank(with_context_parallel=True),
            ),
        }
        if moments or masters:
            state["optimizer"] = self.optimizer.sharded_state_dict(model, is_loading=loading, **self._sharding())
        return state

    def _sharding(self) -> dict[str, Any]:
        """How a distributed optimizer names its shards: so that any other shape can load them."""
        if not self.parallel.distributed_optimizer:
            return {}
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        return {"metadata": {"distrib_optim_sharding_type": "fully_reshardable", "dp_cp_group": group}}

    @contextmanager
    def _own_rng(self) -> Iterator[None]:
        """Swaps this trainer's random state in: neither it nor the rest of the process disturbs the other."""
        outside = torch.get_rng_state()
        torch.set_rng_state(self._rng)
        try:
            yield
        finally:
            self._rng = torch.get_rng_state()
            torch.set_rng_state(outside)
