"""Adam through Megatron's optimizer: build, set the learning rate, forget the moments.

Invariant: after ``reset_moments`` the optimizer takes exactly the steps that a new one would take from the
same weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from internalize.train.mcore import (
    DistributedDataParallel,
    MegatronOptimizer,
    OptimizerConfig,
    get_megatron_optimizer,
)


@dataclass(frozen=True)
class OptimizerSpec:
    """AdamW settings; the learning rate comes with every step, ``lr`` is its default.

    Args:
        weight_decay: decoupled, not applied to vectors (norm gains) and biases.
        clip_grad: global gradient norm above which gradients are scaled down; 0 turns clipping off.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_grad: float = 1.0


def build_optimizer(
    spec: OptimizerSpec, model: DistributedDataParallel, distributed: bool = False
) -> MegatronOptimizer:
    """Megatron's optimizer over a wrapped model. Call inside ``shim.cpu_stand_ins``.

    A bf16 model (``model.config.bf16``) gets master weights in float32, held by the optimizer.

    Args:
        distributed: moments split over data-parallel ranks. Not on the CPU: after a load, native Adam in the
            distributed optimizer shares one `step` tensor and counts it once a parameter; the plain optimizer saves
            and reshards correctly.
    """
    config = OptimizerConfig(
        optimizer="adam",
        lr=spec.lr,
        min_lr=0.0,
        adam_beta1=spec.betas[0],
        adam_beta2=spec.betas[1],
        adam_eps=spec.eps,
        weight_decay=spec.weight_decay,
        clip_grad=spec.clip_grad,
        use_distributed_optimizer=distributed,
        bf16=model.config.bf16,
        params_dtype=model.config.params_dtype,
    )
    optimizer = get_megatron_optimizer(config, [model], use_gloo_process_groups=False)
    for group in optimizer.param_groups:
        group["fused"] = True  # one kernel for all parameters: saves about 4 % of a small step
        # Megatron leaves the multiplier to its parameter scheduler, which is not used here.
        group["weight_decay"] = spec.weight_decay * group["wd_mult"]
    return optimizer


def inner_optimizers(optimizer: MegatronOptimizer) -> Iterator[Any]:
    """The torch optimizers inside."""
    for chained in getattr(optimizer, "chained_optimizers", [optimizer]):
        yield chained.optimizer


def set_learning_rate(optimizer: MegatronOptimizer, lr: float) -> None:
    """Takes effect at the next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def has_moments(optimizer: MegatronOptimizer) -> bool:
    """Whether a step was taken since the build or the last reset."""
    return any(inner.state for inner in inner_optimizers(optimizer))


def fill_moments(optimizer: MegatronOptimizer) -> None:
    """Gives every weight moments where no step was taken yet: Megatron saves master weights beside moments only. Reset
    them before the next step.
    """
    for chained in getattr(optimizer, "chained_optimizers", [optimizer]):
        chained.init_state_fn(chained.optimizer, chained.config)
        for state in chained.optimizer.state.values():
            state["step"] = torch.ones(())


def reset_moments(optimizer: MegatronOptimizer) -> None:
    """Forgets both Adam moments and the step count; weights and learning rate stay."""
    for inner in inner_optimizers(optimizer):
        inner.state.clear()
        for group in inner.param_groups:
            group.pop("step", None)  # fused Adam variants count here
