"""The base's recipe: every number that decides which weights come out, and nothing else.

Invariant: two rebuilds with equal recipes, equal game rules and equal torch builds train on the same
conversations with the same learning rates; nothing here or in `pretrain.py` reads a clock.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field

from internalize.study_model import Count, Rate, Seed, Settings, Share


class Mix(Settings):
    """Shares of the meta-training conversations (source: the bundled study's note, whole-history part)."""

    known: Share = 0.60
    """Share of conversations that play an episode with the facts at the front of the first user turn."""
    unknown: Share = 0.18
    """Share that plays without facts; the player's belief is drawn afresh every turn, so the base
    plays by guess."""
    chat: Share = 0.22
    """Share that asks `questions` questions (`ask`, `tell`)."""
    questions: Count = 3
    """Questions in a chat conversation."""
    chat_without: Share = 0.25
    """Share of chat conversations without facts (guessed answers)."""
    tell: Share = 0.40
    """Share of the questions with facts that ask for all of them."""
    noise_turn: Share = 0.12
    """Share of known turns that follow a random belief;
    never trained, they teach the model to survive mistakes."""
    recital: Share = 0.30
    """Share of thinks that open with one or two recited facts."""
    mid_game: Share = 0.50
    """Share of episodes that start from a canvas somebody else has worked on."""


class Recipe(Settings):
    """Sizes, optimizer and stop rule of the meta-training.
    Defaults are the setting that made the prebuilt base."""

    hidden_size: Annotated[int, Field(ge=8)] = 96
    """Width of the residual stream."""
    layers: Count = 3
    """Decoder layers."""
    heads: Count = 4
    """Attention heads."""
    kv_heads: Count = 2
    """Key/value heads (grouped-query attention)."""
    head_dim: Annotated[int, Field(ge=2)] = 32
    """Width of one head."""
    intermediate_size: Annotated[int, Field(ge=8)] = 256
    """Width of the SwiGLU."""
    max_positions: Annotated[int, Field(ge=64)] = 512
    """Longest conversation in tokens."""
    qk_gain: Annotated[float, Field(gt=0)] = 1.7
    """Initial gain of the query/key norms: sharper attention from the start, the look-up forms sooner."""
    steps: Count = 2400
    """Optimizer steps; the cosine ends here, an early stop leaves it unfinished."""
    conversations: Count = 24
    """Conversations a step."""
    lr: Annotated[float, Field(gt=0)] = 2e-3
    """Peak learning rate."""
    lr_floor: Share = 0.03
    """Share of the peak that the cosine ends at."""
    warmup: Annotated[int, Field(ge=0)] = 50
    """Linear warm-up steps."""
    betas: Annotated[list[Rate], Field(min_length=2, max_length=2)] = [0.9, 0.98]
    """AdamW's moment decays."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """AdamW's decoupled weight decay."""
    clip_grad: Annotated[float, Field(gt=0)] = 1.0
    """Global gradient-norm limit."""
    check_every: Count = 400
    """Steps between gate checks."""
    check_episodes: Annotated[int, Field(ge=4)] = 128
    """Episodes a side of a gate check."""
    stop_teacher: Share = 1.0
    """A check whose teacher clears at least this share, and whose base clears at most `stop_base`,
    ends the training."""
    stop_base: Share = 0.08
    """See `stop_teacher`."""
    seed: Seed = 1
    """Seed of the initial weights and of the conversations."""
    mix: Mix = Mix()
    """Shares of the conversations."""

    def learning_rate(self, step: int) -> float:
        """Rate of 0-based `step`: linear warm-up times a cosine from `lr` down to `lr * lr_floor` over
        `steps`."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, step / self.steps)))
        return self.lr * warm * (self.lr_floor + (1.0 - self.lr_floor) * cosine)

    def model_config_dict(self, vocabulary: int, end: int, pad: int) -> dict[str, Any]:
        """The Hugging Face `config.json` of the model that this recipe trains (Qwen3ForCausalLM, tied
        embeddings)."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "sliding_window": None,
            "max_window_layers": self.layers,
            "max_position_embeddings": self.max_positions,
            "vocab_size": vocabulary,
            "initializer_range": 0.05,
            "bos_token_id": None,
            "eos_token_id": end,
            "pad_token_id": pad,
            "dtype": "float32",
            "use_cache": True,
        }
