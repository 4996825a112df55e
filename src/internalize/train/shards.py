"""A model that is spread over ranks: each rank's part of the weights, of the batch and of the sums.

Invariant: with one rank nothing is cut, sent or reordered. `place` then `whole_tensors` gives back the same tensors bit
by bit at any shape, and the shares of the data-parallel ranks are a partition of the batch that every rank computes
alike.

Tensors go by their global Megatron names (`hf_names`): a pipeline stage numbers its layers from 0, and the last stage
of a model with tied embeddings holds a second copy of the embedding, which is placed here and never read back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from internalize.checkpoints import hf_names
from internalize.checkpoints.hf_names import LAYERS, Entry
from internalize.errors import UserError
from internalize.train.batch import TrainSequence
from internalize.train.mcore import GPTModel, parallel_state

_LAYER = re.compile(rf"^{re.escape(LAYERS)}(\d+)\.")
EMBEDDING, OUTPUT = "embedding.word_embeddings.weight", "output_layer.weight"


def share(sequences: Sequence[TrainSequence], rank: int, size: int) -> list[TrainSequence]:
    """The sequences that data-parallel rank `rank` of `size` computes, in batch order; balanced by computed tokens.

    Longest first, each to the rank with the least so far; ties go to the lower rank.
    """
    if size == 1:
        return list(sequences)
    lengths = [sequence.last_trained for sequence in sequences]
    load, mine = [0] * size, []
    for i in sorted(range(len(sequences)), key=lambda i: (-lengths[i], i)):
        target = load.index(min(load))
        load[target] += lengths[i]
        if target == rank:
            mine.append(i)
    return [sequences[i] for i in sorted(mine)]


def global_parameters(model: GPTModel) -> dict[str, Tensor]:
    """This rank's parameters by global name."""
    layers = model.decoder.layers
    offset = layers[0].layer_number - 1 if len(layers) else 0
    return {
        _LAYER.sub(lambda match: f"{LAYERS}{int(match[1]) + offset}.", name): parameter
        for name, parameter in model.named_parameters()
    }


def place(state: Mapping[str, Tensor], model: GPTModel, config: Mapping[str, Any]) -> None:
    """Copies this rank's part of an HF state dict into the model's parameters; asks for one tensor after another, and
    only for those of this rank's layers.

    Raises:
        hf_names.TensorMismatchError: the state is not exactly this model's.
    """
    hf_names.check_hf(state, config)
    table = {name: entry for entry in hf_names.entries(config) for name in (entry.module, _fused_name(entry))}
    rank = parallel_state.get_tensor_model_parallel_rank()
    with torch.no_grad():
        for name, parameter in global_parameters(model).items():
            entry = table[name if name in table else EMBEDDING]  # the last stage's copy of a tied embedding
            whole = hf_names.fuse(entry, tuple(state[part] for part in entry.hf), config)
            parameter.copy_(_part(entry, whole, parameter, rank))


def whole_tensors(model: GPTModel, config: Mapping[str, Any], mine: bool = False) -> Iterator[tuple[Entry, Tensor]]:
    """Every tensor of the model, one after another, gathered from the ranks that hold its parts.

    All ranks call it and take all that it yields. One whole tensor is in memory at a time.

    Args:
        mine: True yields only what this pipeline stage holds, without sending it to the other stages.
    """
    parameters = global_parameters(model)
    stages = parallel_state.get_pipeline_model_parallel_world_size()
    stage = parallel_state.get_pipeline_model_parallel_rank()
    for entry in hf_names.entries(config):
        owner = _stage_of(entry, config["num_hidden_layers"], stages)
        if owner == stage:
            name = entry.module if entry.module in parameters else _fused_name(entry)
            tensor = _gather(entry, parameters[name])
        elif mine:
            continue
        else:
            like = next(iter(parameters.values()))
            tensor = torch.empty(_shape(entry), dtype=like.dtype, device=like.device)
        if stages > 1 and not mine:
            group = parallel_state.get_pipeline_model_parallel_group()
            dist.broadcast(tensor, dist.get_global_rank(group, owner), group)
        yield entry, tensor


def add_over_ranks(values: Sequence[float]) -> list[float]:
    """Sums of the last stage's `values` over data-parallel ranks, in float64; every rank gets them.

    Ranks of earlier stages pass zeros.
    """
    sizes = (
        parallel_state.get_data_parallel_world_size(),
        parallel_state.get_pipeline_model_parallel_world_size(),
    )
    if sizes == (1, 1):
        return list(values)
    total = torch.tensor(values, dtype=torch.float64, device=_device())
    dist.all_reduce(total, group=parallel_state.get_data_parallel_group())
    if sizes[1] > 1:
        group = parallel_state.get_pipeline_model_parallel_group()
        dist.broadcast(total, dist.get_global_rank(group, sizes[1] - 1), group)
    result: list[float] = total.tolist()
    return result


@contextmanager
def together(order: Callable[[UserError], int] = lambda error: 0) -> Iterator[None]:
    """A `UserError` raised inside on any rank is raised on every rank: otherwise the others would go on and wait for it
    for ever. Of several, the one with the lowest `order` is raised, then the lowest rank's.
    """
    error: UserError | None = None
    try:
        yield
    except UserError as mine:
        error = mine
    if dist.get_world_size() > 1:
        failed = torch.tensor(0 if error is None else 1, device=_device())
        dist.all_reduce(failed)
        if failed.item():
            errors: list[UserError | None] = [None] * dist.get_world_size()
            dist.all_gather_object(errors, error)
            error = min(filter(None, errors), key=order)
    if error is not None:
        raise error


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _stage_of(entry: Entry, layers: int, stages: int) -> int:
    if entry.layer is not None:
        return entry.layer * stages // layers
    return 0 if entry.module == EMBEDDING else stages - 1


def _shape(entry: Entry) -> tuple[int, ...]:
    """Shape of the whole Megatron tensor: fused tensors are stacked on their first dimension."""
    return (sum(shape[0] for shape in entry.shapes), *entry.shapes[0][1:])


def _fused_name(entry: Entry) -> str:
    """The parameter's name in a model of Transformer Engine modules, which hold the norm before a linear layer."""
    return entry.stored if entry.layer is None else entry.stored.replace(LAYERS, f"{LAYERS}{entry.layer}.", 1)


def _split_dim(parameter: Tensor) -> int | None:
    """Dimension that tensor parallelism cuts; None when every rank holds the whole."""
    if not getattr(parameter, "tensor_model_parallel", False):
        return None
    return int(parameter.partition_dim)  # type: ignore[attr-defined]  # set by Megatron


def _part(entry: Entry, tensor: Tensor, parameter: Tensor, rank: int) -> Tensor:
    size, dim = parallel_state.get_tensor_model_parallel_world_size(), _split_dim(parameter)
    if size == 1 or dim is None:
        return tensor
    if entry.kind == "gate_up":
        return torch.cat([half.chunk(size)[rank] for half in tensor.chunk(2)])
    return tensor.chunk(size, dim)[rank]


def _gather(entry: Entry, part: Tensor) -> Tensor:
    size, dim = parallel_state.get_tensor_model_parallel_world_size(), _split_dim(part)
    part = part.detach()
    if size == 1 or dim is None:
        return part
    parts = [torch.empty_like(part) for _ in range(size)]
    dist.all_gather(parts, part.contiguous(), group=parallel_state.get_tensor_model_parallel_group())
    if entry.kind == "gate_up":
        halves = [piece.chunk(2) for piece in parts]
        return torch.cat([half[which] for which in (0, 1) for half in halves])
    return torch.cat(parts, dim)
