"""Gate `delta`: forward and backward of the gated delta rule beside its recurrence in float64.

Invariant: the recurrence is written as the rule is defined, one token at a time, so nothing that a kernel reorders is
reordered in its judge. Per head, with state S [key, value], decay a = exp(g) and step size b:

    S <- a S;  u = b (v - S' k);  S <- S + k u';  o = scale S' q        (Gated DeltaNet, arXiv 2412.06464)

The state starts at zero in every packed sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from internalize.errors import UserError
from internalize.numerics.packed import Kernel, Operation

CHUNK = 64


@dataclass(frozen=True)
class DeltaShape:
    """Heads of one rank and their sizes; `lengths` of the packed sequences."""

    heads: int
    key_dim: int
    value_dim: int
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        packed = f"thd [{sum(self.lengths)}, {self.heads}, {self.key_dim}x{self.value_dim}]"
        return f"{packed} of {'+'.join(map(str, self.lengths))} tokens"


def _draw(shape: DeltaShape, drawn: torch.Generator) -> dict[str, Tensor]:
    """`q`, `k` [T, heads, key], `v` [T, heads, value], `g` (log decay, <= 0) and `beta` [T, heads]."""
    size = (sum(shape.lengths), shape.heads)
    return {
        "q": F.normalize(torch.randn(*size, shape.key_dim, generator=drawn), dim=-1),
        "k": F.normalize(torch.randn(*size, shape.key_dim, generator=drawn), dim=-1),
        "v": torch.randn(*size, shape.value_dim, generator=drawn),
        "g": -0.3 * torch.rand(size, generator=drawn),
        "beta": torch.rand(size, generator=drawn),
    }


def recurrent(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    """The judge: the rule as it is defined."""
    return torch.cat([_recurrent(*part) for part in _sequences(inputs, lengths)])


DELTA = Operation("delta", recurrent, _draw, float32=("g",))
"""Errors of output and the gradients of q, k, v, g and beta; kernels take the decay in float32 whatever the rest is."""


def chunked(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    """The rule over chunks of tokens: within a chunk all u at once, from one triangular system."""
    return torch.cat([_chunked(*part) for part in _sequences(inputs, lengths)])


def delta_kernel(name: str) -> Kernel:
    """`torch` (the chunked form above), `megatron` (megatron-core's deterministic form), `fla` (its triton kernel).

    Raises:
        UserError: unknown, or its package is not installed here.
    """
    kernels: dict[str, Kernel] = {"torch": chunked, "megatron": _megatron, "fla": _fla}
    if name not in kernels:
        raise UserError("unknown delta rule backend", got=name, expected=", ".join(kernels))
    return kernels[name]


def _sequences(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> list[tuple[Tensor, ...]]:
    """(q, k, v, g, beta) of each sequence."""
    return list(zip(*(torch.split(inputs[name], list(lengths)) for name in ("q", "k", "v", "g", "beta")), strict=True))


def _recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """[n, heads, value]"""
    state = q.new_zeros(q.size(1), k.size(2), v.size(2))
    outputs = []
    for t in range(q.size(0)):
        state = g[t].exp()[:, None, None] * state
        u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + torch.einsum("hk,hv->hkv", k[t], u)
        outputs.append(torch.einsum("hkv,hk->hv", state, q[t]) * q.size(2) ** -0.5)
    return torch.stack(outputs)


def _chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """[n, heads, value].

    With G the running sum of g inside a chunk and S the state before it, the definition unrolls to
    (I + A) U = beta (V - exp(G) K S) with A[i, j] = beta[i] exp(G[i] - G[j]) k[i].k[j] for j < i.
    """
    q, k, v, g, beta = (x.transpose(0, 1) for x in (q, k, v, g, beta))  # heads first
    state = q.new_zeros(q.size(0), k.size(2), v.size(2))
    outputs = []
    for qc, kc, vc, gc, bc in zip(*(torch.split(x, CHUNK, 1) for x in (q, k, v, g, beta)), strict=True):
        n = qc.size(1)
        total = gc.cumsum(1)  # G
        future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
        decay = (total[:, :, None] - total[:, None, :]).masked_fill(future, float("-inf")).exp()
        system = (bc[:, :, None] * decay * (kc @ kc.transpose(1, 2))).tril(-1)
        system = system + torch.eye(n, dtype=q.dtype, device=q.device)
        seen = total.exp()[:, :, None]
        right = bc[:, :, None] * (vc - seen * (kc @ state))
        u = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        outputs.append(seen * (qc @ state) + (decay * (qc @ kc.transpose(1, 2))) @ u)
        rest = (total[:, -1:] - total).exp()[:, :, None]
        state = total[:, -1].exp()[:, None, None] * state + (rest * kc).transpose(1, 2) @ u
    scale: float = q.size(2) ** -0.5
    return torch.cat(outputs, 1).transpose(0, 1) * scale


def _megatron(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    from internalize.train.mcore import torch_chunk_gated_delta_rule

    rule = torch_chunk_gated_delta_rule()
    parts = [rule(*(x[None] for x in part))[0][0] for part in _sequences(inputs, lengths)]
    return torch.cat(parts)


def _fla(inputs: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except ImportError as error:
        raise UserError(
            "delta rule backend `fla` cannot be checked here",
            where="numerics.delta.backend",
            expected="the package flash-linear-attention",
            got=str(error),
            fix="run the gate where the trainer runs, or name the backend that the trainer uses",
        ) from error
    edges = torch.tensor([0, *lengths], device=inputs["q"].device).cumsum(0)
    out: Tensor = chunk_gated_delta_rule(**{name: x[None] for name, x in inputs.items()}, cu_seqlens=edges)[0]
    return out[0]
