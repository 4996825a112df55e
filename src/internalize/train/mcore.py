"""Every name of megatron-core that this project uses, imported in one place.

Invariant: no other module imports ``megatron``; so a version bump is read off this file, and the four import
warnings about Transformer Engine and Apex (absent on CPU, not needed there) are silenced here and nowhere
else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def _without_inductor() -> Iterator[None]:
    """Megatron decorates its fused kernels with ``torch.compile`` while it is imported, which loads the whole compiler
    (1.4 of 3.3 CPU s of a process). No CPU path calls these kernels, so without CUDA the decorator does nothing.
    """

    def identity(model: Any = None, **options: Any) -> Any:
        return (lambda function: function) if model is None else model

    compiler = torch.compile
    if not torch.cuda.is_available():
        torch.compile = identity
    try:
        yield
    finally:
        torch.compile = compiler


with _without_inductor(), warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", message="(Transformer Engine and )?Apex (is|are) not installed", category=UserWarning
    )
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.core import CheckpointingException
    from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
    from megatron.core.dist_checkpointing.strategies.base import SaveShardedStrategy
    from megatron.core.dist_checkpointing.strategies.torch import (
        MCoreSavePlanner,
        _replace_state_dict_keys_with_sharded_keys,
        mcore_to_pyt_state_dict,
    )
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec,
        get_gpt_layer_with_transformer_engine_spec,
    )
    from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.tensor_parallel import (
        gather_from_tensor_model_parallel_region,
        vocab_parallel_cross_entropy,
    )
    from megatron.core.tensor_parallel import random as tensor_parallel_random
    from megatron.core.tensor_parallel.random import initialize_rng_tracker
    from megatron.core.transformer.module import Float16Module, MegatronModule
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_config import TransformerConfig

replace_keys_with_sharded_keys = _replace_state_dict_keys_with_sharded_keys

__all__ = [
    "CheckpointingException",
    "DistributedDataParallel",
    "DistributedDataParallelConfig",
    "Float16Module",
    "GPTModel",
    "MCoreSavePlanner",
    "MegatronModule",
    "MegatronOptimizer",
    "ModuleSpec",
    "OptimizerConfig",
    "PackedSeqParams",
    "SaveShardedStrategy",
    "ShardedObject",
    "ShardedTensor",
    "TransformerConfig",
    "dist_checkpointing",
    "finalize_model_grads",
    "gather_from_tensor_model_parallel_region",
    "get_forward_backward_func",
    "get_gpt_layer_local_spec",
    "get_gpt_layer_with_transformer_engine_spec",
    "get_megatron_optimizer",
    "initialize_rng_tracker",
    "mcore_to_pyt_state_dict",
    "parallel_state",
    "replace_keys_with_sharded_keys",
    "tensor_parallel_random",
    "vocab_parallel_cross_entropy",
]


def torch_chunk_gated_delta_rule() -> Any:
    """Megatron's gated delta rule without kernels; imported on demand, dense models have no such layer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.ssm.gated_delta_net import torch_chunk_gated_delta_rule as rule
    return rule
