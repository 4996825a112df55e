"""One table: Hugging Face tensor names <-> Megatron names, for Qwen3-type dense models.

Invariant: ``from_megatron(to_megatron(state)) == state`` tensor by tensor, bit by bit; a missing, unexpected
or misshapen tensor is an error that names it.

Megatron keeps two fused tensors a layer: ``linear_qkv`` interleaves, per key-value group, that group's query
heads, its key head and its value head; ``linear_fc1`` stacks gate on up. Its torch_dist checkpoints hold each
per-layer tensor once, stacked over layers, under names of the fused-norm modules (``stored``), whichever
modules the process trains with.

torch only; no megatron import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from internalize.errors import UserError

LAYERS = "decoder.layers."


class TensorMismatchError(UserError):
    """A state dict does not fit the model config."""

    title = "checkpoint mismatch"


@dataclass(frozen=True, slots=True)
class Entry:
    """One Megatron tensor and the HF tensors it is made of.

    Args:
        stored: key in a torch_dist checkpoint; stacked over layers where ``layer`` is not None.
        module: parameter name in a model built with Megatron's local layer spec.
        hf: HF names, in the order of ``fuse``.
        shapes: their shapes.
        kind: how they are fused.
        layer: global layer index, None outside the decoder layers.
    """

    stored: str
    module: str
    hf: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kind: Literal["plain", "qkv", "gate_up"]
    layer: int | None


def entries(config: Mapping[str, Any]) -> Iterator[Entry]:
    """All tensors of the model that a config.json describes, embedding first."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    head, ffn = config["head_dim"], config["intermediate_size"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head

    def plain(stored: str, module: str, hf: str, *shape: int, layer: int | None = None) -> Entry:
        return Entry(stored, module, (hf,), (shape,), "plain", layer)

    embedding = "embedding.word_embeddings.weight"
    yield plain(embedding, embedding, "model.embed_tokens.weight", vocab, hidden)
    for i in range(config["num_hidden_layers"]):
        m, h = f"{LAYERS}{i}.", f"model.layers.{i}."
        attention = "self_attention."
        yield plain(
            f"{LAYERS}{attention}linear_qkv.layer_norm_weight",
            f"{m}input_layernorm.weight",
            f"{h}input_layernorm.weight",
            hidden,
            layer=i,
        )
        yield Entry(
            f"{LAYERS}{attention}linear_qkv.weight",
            f"{m}{attention}linear_qkv.weight",
            tuple(f"{h}self_attn.{x}_proj.weight" for x in "qkv"),
            ((q, hidden), (kv, hidden), (kv, hidden)),
            "qkv",
            i,
        )
        for x in "qk":
            yield plain(
                f"{LAYERS}{attention}{x}_layernorm.weight",
                f"{m}{attention}{x}_layernorm.weight",
                f"{h}self_attn.{x}_norm.weight",
                head,
                layer=i,
            )
        yield plain(
            f"{LAYERS}{attention}linear_proj.weight",
            f"{m}{attention}linear_proj.weight",
            f"{h}self_attn.o_proj.weight",
            hidden,
            q,
            layer=i,
        )
        yield plain(
            f"{LAYERS}mlp.linear_fc1.layer_norm_weight",
            f"{m}pre_mlp_layernorm.weight",
            f"{h}post_attention_layernorm.weight",
            hidden,
            layer=i,
        )
        yield Entry(
            f"{LAYERS}mlp.linear_fc1.weight",
            f"{m}mlp.linear_fc1.weight",
            (f"{h}mlp.gate_proj.weight", f"{h}mlp.up_proj.weight"),
            ((ffn, hidden), (ffn, hidden)),
            "gate_up",
            i,
        )
        yield plain(
            f"{LAYERS}mlp.linear_fc2.weight",
            f"{m}mlp.linear_fc2.weight",
            f"{h}mlp.down_proj.weight",
            hidden,
            ffn,
            layer=i,
        )
    norm = "decoder.final_layernorm.weight"
    yield plain(norm, norm, "model.norm.weight", hidden)
    if not config.get("tie_word_embeddings", False):
        yield plain("output_layer.weight", "output_layer.weight", "lm_head.weight", vocab, hidden)


def fuse(entry: Entry, tensors: tuple[Tensor, ...], config: Mapping[str, Any]) -> Tensor:
    """The Megatron tensor made of an entry's HF tensors."""
    if entry.kind == "plain":
        return tensors[0]
    if entry.kind == "gate_up":
        return torch.cat(tensors)
    groups, hidden = config["num_key_value_heads"], config["hidden_size"]
    return torch.cat([t.reshape(groups, -1, hidden) for t in tensors], 1).reshape(-1, hidden)


def split(entry: Entry, tensor: Tensor, config: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Inverse of ``fuse``; the results may be views."""
    if entry.kind == "plain":
        return (tensor,)
    if entry.kind == "gate_up":
        return tensor.chunk(2)
    groups, hidden, head = config["num_key_value_heads"], config["hidden_size"], config["head_dim"]
    queries = config["num_attention_heads"] // groups * head
    parts = torch.split(tensor.view(groups, -1, hidden), [queries, head, head], 1)
    return tuple(part.reshape(-1, hidden) for part in parts)


def check_hf(state: Mapping[str, Tensor], config: Mapping[str, Any], where: str = "") -> None:
    """Refuses a state dict that is not exactly the model of ``config``.

    Raises:
        TensorMismatchError: a tensor is missing, unexpected or of another shape; at most three are named.
    """
    wanted = {name: shape for e in entries(config) for name, shape in zip(e.hf, e.shapes, strict=True)}
    surplus = set(state) - set(wanted)
    if "lm_head.weight" in surplus and config.get("tie_word_embeddings", False):
        surplus.discard("lm_head.weight")  # tied checkpoints may carry the copy; the embedding is what counts
    problems = [f"missing {name} {list(shape)}" for name, shape in wanted.items() if name not in state]
    problems += [f"unexpected {name} {list(state[name].shape)}" for name in sorted(surplus)]
    problems += [
        f"{name} is {list(state[name].shape)}, not {list(shape)}"
        for name, shape in wanted.items()
        if name in state and tuple(state[name].shape) != shape
    ]
    if problems:
        raise TensorMismatchError(
            f"{len(problems)} tensors do not fit the model config",
            where=where,
            expected=f"the {len(wanted)} tensors of config.json",
            got="; ".join(problems[:3]) + (" ..." if len(problems) > 3 else ""),
            fix="use the config.json that belongs to these weights",
        )


def to_megatron(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """HF state dict -> full (unsharded) tensors by Megatron parameter name.

    Raises:
        TensorMismatchError: see ``check_hf``.
    """
    check_hf(state, config)
    return {e.module: fuse(e, tuple(state[name] for name in e.hf), config) for e in entries(config)}


def from_megatron(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Full tensors by Megatron parameter name -> HF state dict of own, contiguous copies."""
    state: dict[str, Tensor] = {}
    for entry in entries(config):
        for name, part in zip(entry.hf, split(entry, tensors[entry.module].detach(), config), strict=True):
            state[name] = part.clone(memory_format=torch.contiguous_format)
    return state
