"""Where the first number went wrong: the module, its shape, the micro-batch and the episodes in it.

Invariant: it is called after a step that was refused, so it costs nothing while all is well; it computes the same
micro-batches again, one at a time and watching, and changes neither weights nor moments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from internalize.train.batch import TrainSequence
from internalize.train.forward import forward_step, run_schedule
from internalize.train.losses import LossSpec, normalisers
from internalize.train.packing import pack
from internalize.train.shim import cpu_stand_ins
from internalize.train.stats import NonFiniteError, add_up
from internalize.train.trainer import Trainer


def located(
    trainer: object, sequences: Sequence[TrainSequence], loss: LossSpec, error: NonFiniteError
) -> NonFiniteError:
    """The error with the place where the first number went wrong; the error itself where nothing can be added.

    A wrong weight is named by the error already. Only a whole model in one process is looked into: a rank of a larger
    one cannot compute the forward pass alone.

    Args:
        trainer: what refused the step.
        sequences: its batch.
        loss: how the loss was formed.
        error: what it raised.
    """
    if not isinstance(trainer, Trainer) or torch.distributed.get_world_size() > 1 or error.what.startswith("weight "):
        return error
    batches = pack(sequences, trainer.max_tokens)
    norm = normalisers(sequences, loss)
    trained = iter([sequence for sequence in sequences if sequence.last_trained])
    for number, batch in enumerate(batches):
        episodes = sorted({next(trained).episode for _ in batch.boundaries[1:]})
        found: list[str] = []
        with cpu_stand_ins(), _watching(trainer.model, found):
            trainer._ddp.zero_grad_buffer()
            sums = run_schedule(functools.partial(forward_step, loss, norm), [batch], trainer._ddp)
        first = _first(found, add_up(sums), trainer.model)
        if first is None:
            continue
        return NonFiniteError(
            f"{first} is not finite",
            where=f"{error.where}, micro-batch {number + 1} of {len(batches)}, episodes {', '.join(episodes)}",
            expected=error.expected,
            got=f"{error.got}; {error.what}",
            fix=error.fix,
        )
    return error


def _first(outputs: Sequence[str], sums: Mapping[str, float], model: nn.Module) -> str | None:
    """The first tensor in the order of computation: outputs, losses, gradients from the last layer backwards."""
    if outputs:
        return f"the output of {outputs[0]}"
    for name, value in sums.items():
        if not math.isfinite(value):
            return f"the sum of {name} over the micro-batch"
    for name, parameter in reversed(list(model.named_parameters())):
        if not bool(parameter.main_grad.isfinite().all()):  # type: ignore[attr-defined]  # set by Megatron
            return f"the gradient of {name} {list(parameter.shape)}"
    return None


@contextmanager
def _watching(model: nn.Module, found: list[str]) -> Iterator[None]:
    """Notes modules, innermost first, whose output is not finite, with its shape, in the order of computation."""

    def note(name: str, module: nn.Module, args: Any, output: Any) -> None:
        tensors = output if isinstance(output, tuple | list) else (output,)
        for tensor in tensors:
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                found.append(f"{name} {list(tensor.shape)}")

    hooks = [
        module.register_forward_hook(functools.partial(note, name)) for name, module in model.named_modules() if name
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
