"""The reference: a Qwen3 decoder and the three losses in plain torch, token by token, in any float type.

Written from the model's definition, sharing nothing with the package but the names of the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec


def logits(state: Mapping[str, Tensor], config: Mapping[str, Any], tokens: Sequence[int]) -> Tensor:
    """[n, V] predictions after each of n tokens."""
    heads, groups, head = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    eps, n = config["rms_norm_eps"], len(tokens)
    embedding = state["model.embed_tokens.weight"]
    dtype = embedding.dtype
    inverse = 1.0 / config["rope_theta"] ** (torch.arange(0, head, 2, dtype=torch.float32) / head)
    angles = torch.outer(torch.arange(n, dtype=torch.float32), inverse).to(dtype)
    cos, sin = torch.cos(angles).repeat(1, 2), torch.sin(angles).repeat(1, 2)

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain

    def rotate(x: Tensor) -> Tensor:  # [heads, n, head]
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    x = embedding[torch.tensor(list(tokens))]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    for i in range(config["num_hidden_layers"]):
        w = {k.removeprefix(f"model.layers.{i}."): v for k, v in state.items() if f".{i}." in k}
        y = norm(x, w["input_layernorm.weight"])
        q, k, v = ((y @ w[f"self_attn.{p}_proj.weight"].T).view(n, -1, head).transpose(0, 1) for p in "qkv")
        q = rotate(norm(q, w["self_attn.q_norm.weight"]))
        k = rotate(norm(k, w["self_attn.k_norm.weight"]))
        k, v = (t.repeat_interleave(heads // groups, 0) for t in (k, v))
        scores = (q @ k.transpose(1, 2) / head**0.5).masked_fill(future, float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)
        x = x + mixed @ w["self_attn.o_proj.weight"].T
        y = norm(x, w["post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(y @ w["mlp.gate_proj.weight"].T)
        x = x + (gate * (y @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    x = norm(x, state["model.norm.weight"])
    return x @ state.get("lm_head.weight", embedding).T


def loss(
    state: Mapping[str, Tensor], config: Mapping[str, Any], batch: Sequence[TrainSequence], spec: LossSpec
) -> Tensor:
    """sum(L_rl) / N_rl + sum(L_ce) / N_ce + sum(L_kl) / N_kl, token by token."""
    sums = dict.fromkeys(("ce", "rl", "kl"), state["model.norm.weight"].new_zeros(()))
    ce_total, rl_tokens, kl_tokens, episodes = 0.0, 0, 0, set()
    for sequence in batch:
        scores = logits(state, config, sequence.tokens)
        for t in range(1, len(sequence.tokens)):
            row, token = scores[t - 1], sequence.tokens[t]
            if sequence.ce_weights is not None and sequence.ce_weights[t]:
                sums["ce"] = sums["ce"] - sequence.ce_weights[t] * row.log_softmax(-1)[token]
                ce_total += sequence.ce_weights[t]
            if sequence.pg_mask is not None and sequence.pg_mask[t]:
                ratio = ((row / spec.temperature).log_softmax(-1)[token] - sequence.rollout_logprobs[t]).exp()
                free, bound = ratio, ratio.clamp(1 - spec.clip_low, 1 + spec.clip_high)
                advantage = sequence.advantages[t]
                sums["rl"] = sums["rl"] - torch.minimum(free * advantage, bound * advantage)
                rl_tokens += 1
            if sequence.kl_mask is not None and sequence.kl_mask[t]:
                teacher = torch.tensor(sequence.teacher_logprobs[t], dtype=row.dtype)
                sums["kl"] = sums["kl"] + (teacher.exp() * (teacher - row.log_softmax(-1))).sum()
                kl_tokens += 1
        if sequence.pg_mask is not None:
            episodes.add(sequence.episode)
    constant = len(episodes) * spec.tokens_per_episode
    rl_total = constant if spec.normaliser == "constant" else rl_tokens
    total = sums["ce"] / ce_total if ce_total else sums["ce"]
    total = total + (sums["rl"] / rl_total if rl_tokens else 0.0)
    return total + (sums["kl"] / kl_tokens if kl_tokens else 0.0)
