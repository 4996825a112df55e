"""Qwen3 forward pass over static key/value rows, fp32, plain torch, inference only.

Invariant: the logits at a position depend only on the tokens at and before it in the same row. Rows are
right-padded; whatever stands behind a row's real tokens (padding, another call's leftovers) has attention
weight exactly zero.

Query heads that share a key/value head are laid out as extra query rows, so grouped-query attention needs no
repeated keys; q/k/v and gate/up are one matrix each. Architecture: Qwen3 technical report (arXiv 2505.09388),
RMS-normed q and k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from internalize.errors import UserError


@dataclass(frozen=True)
class Qwen3Shape:
    """The numbers of a HF `config.json` that the forward pass needs."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    eps: float
    theta: float
    tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Qwen3Shape:
        """Raises UserError when a key is missing or asks for something this forward pass does not do."""
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        unsupported = {
            "attention_bias": bool(config.get("attention_bias", False)),
            "use_sliding_window": bool(config.get("use_sliding_window", False)),
            "hidden_act": config.get("hidden_act", "silu") != "silu",
            "rope_type": rope.get("rope_type", rope.get("type", "default")) != "default",
        }
        if any(unsupported.values()):
            names = ", ".join(k for k, bad in unsupported.items() if bad)
            raise UserError(
                "the local engine cannot run this model",
                where="config.json",
                expected="a dense Qwen3 without attention bias, sliding window or scaled rope",
                got=names,
            )
        try:
            return cls(
                hidden=int(config["hidden_size"]),
                layers=int(config["num_hidden_layers"]),
                heads=int(config["num_attention_heads"]),
                kv_heads=int(config["num_key_value_heads"]),
                head_dim=int(config["head_dim"]),
                intermediate=int(config["intermediate_size"]),
                vocab=int(config["vocab_size"]),
                eps=float(config["rms_norm_eps"]),
                theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
                tied=bool(config.get("tie_word_embeddings", False)),
            )
        except KeyError as missing:
            raise UserError(
                "model configuration lacks a key",
                where="config.json",
                expected=str(missing.args[0]),
                got="nothing",
            ) from None


def hf_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """HF tensor names of a Qwen3ForCausalLM and their shapes, in the model's order."""
    s = Qwen3Shape.of(config)
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (s.vocab, s.hidden)}
    for i in range(s.layers):
        p = f"model.layers.{i}."
        shapes |= {
            p + "input_layernorm.weight": (s.hidden,),
            p + "self_attn.q_proj.weight": (q, s.hidden),
            p + "self_attn.k_proj.weight": (kv, s.hidden),
            p + "self_attn.v_proj.weight": (kv, s.hidden),
            p + "self_attn.q_norm.weight": (s.head_dim,),
            p + "self_attn.k_norm.weight": (s.head_dim,),
            p + "self_attn.o_proj.weight": (s.hidden, q),
            p + "post_attention_layernorm.weight": (s.hidden,),
            p + "mlp.gate_proj.weight": (s.intermediate, s.hidden),
            p + "mlp.up_proj.weight": (s.intermediate, s.hidden),
            p + "mlp.down_proj.weight": (s.hidden, s.intermediate),
        }
    shapes["model.norm.weight"] = (s.hidden,)
    if not s.tied:
        shapes["lm_head.weight"] = (s.vocab, s.hidden)
    return shapes


@dataclass(frozen=True)
class Layer:
    """One decoder layer; `qkv` rows are q heads, k heads, v heads; `qk_norm` is [heads + kv_heads,
    head_dim]."""

    norm1: Tensor
    qkv: Tensor
    qk_norm: Tensor
    out: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Qwen3Weights:
    """fp32 weights in the layout of the forward pass."""

    embed: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Tensor

    @classmethod
    def from_hf(cls, state: Mapping[str, Tensor], config: Mapping[str, Any]) -> Qwen3Weights:
        """From HF tensor names (any float dtype). The tensors are copied. Raises UserError on a missing,
        misshapen or non-finite one."""
        shape = Qwen3Shape.of(config)
        expected = hf_shapes(config)

        def take(name: str) -> Tensor:
            tensor = state.get(name)
            if tensor is None or tuple(tensor.shape) != expected[name]:
                raise UserError(
                    "a weight is missing or has the wrong shape",
                    where=name,
                    expected=str(expected[name]),
                    got="nothing" if tensor is None else str(tuple(tensor.shape)),
                    fix="compare config.json with the checkpoint",
                )
            if not torch.isfinite(tensor).all():
                raise UserError("a weight is not finite", where=name, fix="go back to the step before")
            return tensor.detach().to(dtype=torch.float32, device="cpu", copy=True).contiguous()

        layers = []
        for i in range(shape.layers):
            p = f"model.layers.{i}."
            a, m = p + "self_attn.", p + "mlp."
            layers.append(
                Layer(
                    norm1=take(p + "input_layernorm.weight"),
                    qkv=torch.cat([take(f"{a}{x}_proj.weight") for x in "qkv"]),
                    qk_norm=torch.cat(
                        [
                            take(a + "q_norm.weight").expand(shape.heads, -1),
                            take(a + "k_norm.weight").expand(shape.kv_heads, -1),
                        ]
                    ),
                    out=take(a + "o_proj.weight"),
                    norm2=take(p + "post_attention_layernorm.weight"),
                    gate_up=torch.cat([take(m + "gate_proj.weight"), take(m + "up_proj.weight")]),
                    down=take(m + "down_proj.weight"),
                )
            )
        embed = take("model.embed_tokens.weight")
        head = embed if shape.tied else take("lm_head.weight")
        return cls(embed=embed, layers=tuple(layers), norm=take("model.norm.weight"), head=head)

    def to_hf(self, config: Mapping[str, Any]) -> dict[str, Tensor]:
        """HF name -> the tensor as it is served; views. Inverse of `from_hf`."""
        shape = Qwen3Shape.of(config)
        heads, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        state = {"model.embed_tokens.weight": self.embed}
        for i, layer in enumerate(self.layers):
            p = f"model.layers.{i}."
            q, k, v = torch.split(layer.qkv, [heads, kv, kv])
            gate, up = layer.gate_up.chunk(2)
            state |= {
                p + "input_layernorm.weight": layer.norm1,
                p + "self_attn.q_proj.weight": q,
                p + "self_attn.k_proj.weight": k,
                p + "self_attn.v_proj.weight": v,
                p + "self_attn.q_norm.weight": layer.qk_norm[0],
                p + "self_attn.k_norm.weight": layer.qk_norm[-1],
                p + "self_attn.o_proj.weight": layer.out,
                p + "post_attention_layernorm.weight": layer.norm2,
                p + "mlp.gate_proj.weight": gate,
                p + "mlp.up_proj.weight": up,
                p + "mlp.down_proj.weight": layer.down,
            }
        state["model.norm.weight"] = self.norm
        return state if shape.tied else state | {"lm_head.weight": self.head}


KeyValues = list[tuple[Tensor, Tensor]]
"""One (keys, values) pair a layer, each [rows, kv_heads, positions, head_dim]."""


class Qwen3:
    """The forward pass; holds no sequence state.

    `positions` bounds the rotary table, so no token may stand at or behind it.
    """

    def __init__(self, config: Mapping[str, Any], positions: int) -> None:
        self.shape = s = Qwen3Shape.of(config)
        inverse = 1.0 / (s.theta ** (torch.arange(0, s.head_dim, 2, dtype=torch.float32) / s.head_dim))
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse)
        self.cos = torch.cat([angles.cos(), angles.cos()], -1)  # [positions, head_dim]
        # the sign of rotate-half is folded into the sine table: rot(x) * sin == swap_halves(x) * signed_sin
        self.sin = torch.cat([-angles.sin(), angles.sin()], -1)

    def new_cache(self, rows: int, positions: int) -> KeyValues:
        """Zeroed, never uninitialised: a masked NaN would still poison a row (0 * NaN)."""
        s = self.shape
        size = (rows, s.kv_heads, positions, s.head_dim)
        return [(torch.zeros(size), torch.zeros(size)) for _ in range(s.layers)]

    def extend(self, w: Qwen3Weights, ids: Tensor, offsets: Tensor, last: Tensor, cache: KeyValues) -> Tensor:
        """Append `ids` [B, n] at `offsets` [B] of each row, write keys and values into `cache`, return logits
        [B, vocab].

        `last` [B] is the column of each row's last real token; the logits are those after it. Columns behind
        it are padding.
        """
        rows, n = ids.shape
        pos = offsets[:, None] + torch.arange(n)
        reach = int(offsets.max()) + n
        mask = torch.arange(reach) <= pos[:, :, None]  # [B, n, reach]
        hidden = self._layers(w, ids, pos, mask, cache, reach)
        return self._logits(w, hidden[torch.arange(rows), last])

    def full(self, w: Qwen3Weights, ids: Tensor) -> Tensor:
        """Logits [B, n, vocab] of right-padded rows `ids` [B, n], no cache."""
        rows, n = ids.shape
        pos = torch.arange(n).expand(rows, n)
        mask = torch.ones(1, n, n, dtype=torch.bool).tril()  # one for all rows
        cache = self.new_cache(rows, n)
        return self._logits(w, self._layers(w, ids, pos, mask, cache, n))

    def _layers(self, w: Qwen3Weights, ids: Tensor, pos: Tensor, mask: Tensor, cache: KeyValues, reach: int) -> Tensor:
        """Hidden states [B, n, hidden] before the final norm."""
        s = self.shape
        rows, n = ids.shape
        group = s.heads // s.kv_heads
        cos, sin = self.cos[pos][:, :, None], self.sin[pos][:, :, None]  # [B, n, 1, head_dim]
        # a cache pair as [rows * kv_heads * positions, head_dim]: one indexed copy a layer, along the first axis
        places = cache[0][0].shape[2] if cache else 0  # a model cut down to no layer has none
        at = torch.arange(rows)[:, None] * (s.kv_heads * places) + pos  # [B, n]
        at = (at[:, :, None] + torch.arange(s.kv_heads) * places).flatten()
        # query rows are ordered (group, token): [B or 1, 1, group * n, reach]
        query_mask = mask[:, None].expand(-1, group, n, reach).reshape(-1, 1, group * n, reach)
        bias = torch.zeros(query_mask.shape).masked_fill_(~query_mask, float("-inf"))
        half = s.head_dim // 2
        x = F.embedding(ids, w.embed)
        for layer, (keys, values) in zip(w.layers, cache, strict=True):
            h = F.linear(F.rms_norm(x, (s.hidden,), layer.norm1, s.eps), layer.qkv)
            h = h.view(rows, n, s.heads + 2 * s.kv_heads, s.head_dim)
            qk = F.rms_norm(h[:, :, : s.heads + s.kv_heads], (s.head_dim,), None, s.eps) * layer.qk_norm
            qk = qk * cos + torch.cat([qk[..., half:], qk[..., :half]], -1) * sin
            keys.view(-1, s.head_dim).index_copy_(0, at, qk[:, :, s.heads :].reshape(-1, s.head_dim))
            values.view(-1, s.head_dim).index_copy_(0, at, h[:, :, s.heads + s.kv_heads :].reshape(-1, s.head_dim))
            q = qk[:, :, : s.heads].view(rows, n, s.kv_heads, group, s.head_dim).permute(0, 2, 3, 1, 4)
            a = F.scaled_dot_product_attention(
                q.reshape(rows, s.kv_heads, group * n, s.head_dim),
                keys[:, :, :reach],
                values[:, :, :reach],
                attn_mask=bias,
            )
            a = a.view(rows, s.kv_heads, group, n, s.head_dim).permute(0, 3, 1, 2, 4)
            x = x + F.linear(a.reshape(rows, n, s.heads * s.head_dim), layer.out)
            gate, up = F.linear(F.rms_norm(x, (s.hidden,), layer.norm2, s.eps), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return x

    def _logits(self, w: Qwen3Weights, hidden: Tensor) -> Tensor:
        return F.linear(F.rms_norm(hidden, (self.shape.hidden,), w.norm, self.shape.eps), w.head)


def right_pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """(ids [B, longest] padded with 0 on the right, lengths [B])."""
    lengths = torch.tensor([len(r) for r in rows], dtype=torch.long)
    ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = torch.tensor(r, dtype=torch.long)
    return ids, lengths
