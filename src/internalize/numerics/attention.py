"""Gate `attention`: forward and backward of the core attention beside torch's math kernel in float64.

Invariant: the shapes are the study's own: query and key heads of one tensor-parallel rank, the model's head size (and
256, where fused kernels have been wrong), sequences packed without padding (`thd`).

The published record trained on TransformerEngine's fused attention until its backward turned out wrong for packed
sequences with head size 256; flash-attn 2 was right. No loss curve shows such an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from internalize.errors import UserError
from internalize.numerics.packed import Kernel, Operation, boundaries


@dataclass(frozen=True)
class AttentionShape:
    """Heads of one rank; `lengths` of the packed sequences."""

    heads: int
    kv_heads: int
    head_dim: int
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        packed = f"thd [{sum(self.lengths)}, {self.heads}/{self.kv_heads}, {self.head_dim}]"
        return f"{packed} of {'+'.join(map(str, self.lengths))} tokens"


def _draw(shape: AttentionShape, drawn: torch.Generator) -> dict[str, Tensor]:
    """`q` [T, heads, d], `k` and `v` [T, kv heads, d]."""
    heads = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    total = sum(shape.lengths)
    return {name: torch.randn(total, count, shape.head_dim, generator=drawn) for name, count in heads.items()}


def math_attention(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    """The judge: causal attention of each sequence by torch's math kernel."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    group = q.size(1) // k.size(1)
    parts = []
    for a, b, c in zip(*(torch.split(x, list(lengths)) for x in (q, k, v)), strict=True):
        b, c = (x.repeat_interleave(group, 1) for x in (b, c))
        with sdpa_kernel(SDPBackend.MATH):
            a, b, c = (x.transpose(0, 1) for x in (a, b, c))
            out = F.scaled_dot_product_attention(a, b, c, is_causal=True)
        parts.append(out.transpose(0, 1))
    return torch.cat(parts)


ATTENTION = Operation("attention", math_attention, _draw)
"""Errors of output, dq, dk and dv."""


def attention_kernel(name: str) -> Kernel:
    """The core attention that a trainer computes with: `sdpa`, `flash` (flash-attn 2) or `te` (TransformerEngine).

    Raises:
        UserError: unknown, or its package is not installed here.
    """
    if name not in _KERNELS:
        raise UserError("unknown attention backend", got=name, expected=", ".join(_KERNELS))
    return _KERNELS[name]


def _sdpa(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    from internalize.train.attention import SdpaAttention
    from internalize.train.mcore import PackedSeqParams

    q = inputs["q"]
    config = SimpleNamespace(attention_dropout=0.0, context_parallel_size=1, kv_channels=q.size(2))
    edges, longest = boundaries(lengths, q.device), max(lengths)
    packing = PackedSeqParams("thd", edges, edges, max_seqlen_q=longest, max_seqlen_kv=longest)
    out: Tensor = SdpaAttention(config, 1, None, "self")(q, inputs["k"], inputs["v"], packed_seq_params=packing)
    return out


def _flash(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError as error:
        raise _missing("flash", "flash-attn", error) from error
    q = inputs["q"]
    edges, longest = boundaries(lengths, q.device), max(lengths)
    out: Tensor = flash_attn_varlen_func(
        q, inputs["k"], inputs["v"], edges, edges, longest, longest, dropout_p=0.0, causal=True
    )
    return out


def _transformer_engine(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    try:
        from transformer_engine.pytorch import DotProductAttention
    except ImportError as error:
        raise _missing("te", "transformer-engine", error) from error
    q, k = inputs["q"], inputs["k"]
    edges, longest = boundaries(lengths, q.device), max(lengths)
    module = DotProductAttention(
        q.size(1),
        q.size(2),
        num_gqa_groups=k.size(1),
        attention_dropout=0.0,
        qkv_format="thd",
        attn_mask_type="padding_causal",
    )
    out: Tensor = module(
        q,
        k,
        inputs["v"],
        qkv_format="thd",
        attn_mask_type="padding_causal",
        cu_seqlens_q=edges,
        cu_seqlens_kv=edges,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
    return out.view_as(q)


def _missing(name: str, package: str, error: ImportError) -> UserError:
    return UserError(
        f"attention backend `{name}` cannot be checked here",
        where="numerics.attention.backend",
        expected=f"the package {package}",
        got=str(error),
        fix="run the gate where the trainer runs, or name the backend that the trainer uses",
    )


_KERNELS: dict[str, Callable[[Mapping[str, Tensor], Sequence[int]], Tensor]] = {
    "sdpa": _sdpa,
    "flash": _flash,
    "te": _transformer_engine,
}
