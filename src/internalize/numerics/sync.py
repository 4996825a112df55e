"""Gate `sync`: after a weight update every engine serves exactly the trainer's tensors.

Invariant: tensors are compared by hash, name by name, as they are served; an engine that kept an old tensor, or one of
a neighbour, is named with the tensor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from internalize.engine.local import LocalEngine
from internalize.engine.qwen3 import Qwen3Shape
from internalize.errors import UserError
from internalize.numerics.verdict import Case, Verdict

Hashes = Mapping[str, str]
"""HF tensor name -> SHA-256 of its bytes."""


def tensor_hashes(state: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> dict[str, str]:
    """Hash of each tensor's bytes in `dtype`, the type that engines serve; row-major, whatever its strides."""
    return {
        name: hashlib.sha256(tensor.detach().to("cpu", dtype).contiguous().view(torch.uint8).numpy().data).hexdigest()
        for name, tensor in state.items()
    }


def sync_gate(trained: Mapping[str, Tensor], served: Mapping[str, Callable[[], Hashes]], dtype: torch.dtype) -> Verdict:
    """One case an engine: tensors that differ from the trainer's; none may.

    Args:
        trained: the trainer's weights, HF names.
        served: engine -> hashes of what it serves now.
        dtype: type that the engines serve.
    """
    want = tensor_hashes(trained, dtype)
    cases = []
    for engine, ask in served.items():
        got = ask()
        wrong = [name for name in want if got.get(name) != want[name]]
        surplus = sorted(set(got) - set(want))
        bad = [*wrong, *surplus]
        layer, shape, note = f"weights of engine `{engine}`", f"{len(want)} tensors", f"all {len(want)} hashes equal"
        if bad:
            layer = f"{bad[0]} of engine `{engine}`"
            shape = str(list(trained[bad[0]].shape)) if bad[0] in trained else "a tensor that the trainer lacks"
            have = got.get(bad[0], "nothing")[:12]
            note = f"{len(bad)} of {len(want)} tensors differ; sha256 {have}, trainer {want.get(bad[0], 'none')[:12]}"
        cases.append(Case(layer, shape, float(len(bad)), 0.0, note, "tensors in"))
    return Verdict("sync", tuple(cases))


def served_hashes(engine: LocalEngine) -> dict[str, str]:
    """Hashes of what a local engine computes with, its fused matrices taken apart again.

    Raises:
        UserError: it holds no weights yet.
    """
    weights = engine._weights
    if weights is None:
        raise UserError("the engine has no weights yet", fix="update its weights before they are compared")
    s = Qwen3Shape.of(engine.config)
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    state = {"model.embed_tokens.weight": weights.embed, "model.norm.weight": weights.norm}
    for number, layer in enumerate(weights.layers):
        at = f"model.layers.{number}."
        projections = dict(zip("qkv", torch.split(layer.qkv, [q, kv, kv]), strict=True))
        state |= {f"{at}self_attn.{p}_proj.weight": tensor for p, tensor in projections.items()}
        gate, up = layer.gate_up.chunk(2)
        state |= {
            f"{at}input_layernorm.weight": layer.norm1,
            f"{at}self_attn.q_norm.weight": layer.qk_norm[0],
            f"{at}self_attn.k_norm.weight": layer.qk_norm[s.heads],
            f"{at}self_attn.o_proj.weight": layer.out,
            f"{at}post_attention_layernorm.weight": layer.norm2,
            f"{at}mlp.gate_proj.weight": gate,
            f"{at}mlp.up_proj.weight": up,
            f"{at}mlp.down_proj.weight": layer.down,
        }
    if not s.tied:
        state["lm_head.weight"] = weights.head
    return tensor_hashes(state)
