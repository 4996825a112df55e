"""GPTModel from a Hugging Face config.json.

Invariant: with the same tensors, the model computes the same logits as transformers' Qwen3ForCausalLM (a test
holds them within 1e-5 in float32). A config that asks for something this model does not compute is refused by
key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from internalize.errors import UserError
from internalize.train.attention import SdpaAttention
from internalize.train.distributed import ParallelSpec
from internalize.train.mcore import (
    GPTModel,
    ModuleSpec,
    TransformerConfig,
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
    parallel_state,
)

SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)


TENSOR_CUTS = ("vocab_size", "num_attention_heads", "num_key_value_heads", "intermediate_size")
"""What tensor parallelism cuts."""


class ModelConfigError(UserError):
    """The model's config.json cannot be built here."""

    title = "model config error"


def check_config(config: Mapping[str, Any]) -> None:
    """Refuses a config.json that this model would silently compute differently.

    Raises:
        ModelConfigError: names the key, what is expected and what was found.
    """

    def refuse(key: str, expected: str) -> None:
        raise ModelConfigError(
            "unsupported model config",
            where=f"config.json: {key}",
            expected=expected,
            got=repr(config.get(key)),
        )

    if config.get("model_type", "qwen3") != "qwen3":
        refuse("model_type", "qwen3")
    for key in SIZES:
        if not isinstance(config.get(key), int) or config[key] < 1:
            refuse(key, "a positive integer")
    if config["num_attention_heads"] % config["num_key_value_heads"]:
        refuse("num_key_value_heads", f"a divisor of num_attention_heads = {config['num_attention_heads']}")
    for key, default, expected in (
        ("hidden_act", "silu", "silu"),
        ("attention_bias", False, "false"),
        ("attention_dropout", 0.0, "0"),
        ("use_sliding_window", False, "false"),
        ("rope_scaling", None, "null"),
    ):
        if config.get(key, default) not in (default, None):
            refuse(key, expected)
    if rope_theta(config) <= 0:
        refuse("rope_theta", "a positive number")


def rope_theta(config: Mapping[str, Any]) -> float:
    """Base of the rotary embedding; older files hold it at the top, newer ones under ``rope_parameters``."""
    parameters = config.get("rope_parameters") or {}
    if parameters.get("rope_type", "default") != "default":
        raise ModelConfigError(
            "unsupported model config",
            where="config.json: rope_parameters.rope_type",
            expected="default",
            got=repr(parameters["rope_type"]),
        )
    return float(config.get("rope_theta", parameters.get("rope_theta", 10000.0)))


def transformer_config(config: Mapping[str, Any], parallel: ParallelSpec) -> TransformerConfig:
    """Megatron's config for a Qwen3-type config.json: RMSNorm, SwiGLU, QK norm, no biases, no dropout, no
    fused kernels.
    """
    half = parallel.precision == "bf16"
    dtype = torch.bfloat16 if half else torch.float32
    return TransformerConfig(
        num_layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        ffn_hidden_size=config["intermediate_size"],
        num_attention_heads=config["num_attention_heads"],
        num_query_groups=config["num_key_value_heads"],
        kv_channels=config["head_dim"],
        normalization="RMSNorm",
        layernorm_epsilon=config.get("rms_norm_eps", 1e-6),
        qk_layernorm=True,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        add_qkv_bias=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        init_method_std=config.get("initializer_range", 0.02),
        tensor_model_parallel_size=parallel.tp,
        pipeline_model_parallel_size=parallel.pp,
        sequence_parallel=parallel.sequence_parallel and parallel.tp > 1,
        recompute_granularity="full" if parallel.recompute else None,
        recompute_method="uniform" if parallel.recompute else None,
        recompute_num_layers=1 if parallel.recompute else None,
        bf16=half,
        pipeline_dtype=dtype,
        params_dtype=dtype,
        # The loss comes divided by its own normaliser: sum over micro-batches and ranks, never average.
        calculate_per_token_loss=True,
        # Packs differ in length; the dispatcher is irrelevant to a dense model but the check asks for it.
        variable_seq_lengths=True,
        moe_token_dispatcher_type="alltoall",
        # No CUDA kernels.
        use_cpu_initialization=True,
        persist_layer_norm=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        cross_entropy_loss_fusion=False,
        batch_p2p_sync=False,
        cuda_graph_scope=[],
    )


def build_model(config: Mapping[str, Any], parallel: ParallelSpec) -> tuple[TransformerConfig, GPTModel]:
    """This rank's part of the model, initialised from torch's global generator.

    Call inside ``shim.cpu_stand_ins`` and after ``distributed.acquire``.

    Raises:
        ModelConfigError: the config asks for something else than a Qwen3-type dense decoder, or cannot be cut into
            the parallel shape.
    """
    check_config(config)
    check_divides(config, parallel)
    mcore_config = transformer_config(config, parallel)
    spec = layer_spec(parallel)
    model = GPTModel(
        config=mcore_config,
        transformer_layer_spec=spec,
        vocab_size=config["vocab_size"],
        max_sequence_length=config["max_position_embeddings"],
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        parallel_output=True,
        share_embeddings_and_output_weights=bool(config.get("tie_word_embeddings", False)),
        position_embedding_type="rope",
        rotary_base=rope_theta(config),
    )
    return mcore_config, model.cuda() if torch.cuda.is_available() else model


def layer_spec(parallel: ParallelSpec) -> ModuleSpec:
    """The modules of a layer: torch's own with attention by `SdpaAttention`, or Transformer Engine's where sequence
    parallelism asks for them (torch's norm refuses split sequences).
    """
    if parallel.sequence_parallel and parallel.tp > 1:
        return get_gpt_layer_with_transformer_engine_spec(qk_layernorm=True)
    spec = get_gpt_layer_local_spec(qk_layernorm=True, normalization="RMSNorm")
    spec.submodules.self_attention.submodules.core_attention = ModuleSpec(module=SdpaAttention)
    return spec


def check_divides(config: Mapping[str, Any], parallel: ParallelSpec) -> None:
    """Refuses a parallel shape that does not divide the model.

    Raises:
        ModelConfigError: names the key of config.json and the size.
    """
    cuts = [(key, "tensor", parallel.tp) for key in TENSOR_CUTS] + [("num_hidden_layers", "pipeline", parallel.pp)]
    for key, kind, size in cuts:
        if config[key] % size:
            raise ModelConfigError(
                f"the model cannot be cut {size} times by {kind} parallelism",
                where=f"config.json: {key}",
                expected=f"a multiple of {size}",
                got=f"{config[key]}",
                fix=f"choose another `parallel.{kind}`",
            )
