"""The judge of an engine: the model's own definition, computed slowly and surely from its Hugging Face folder.

Invariant: given the same tensors, `TorchReference` computes what transformers' Qwen3ForCausalLM computes (a test holds
them together), in float64, one sequence at a time, without cache, padding, fused matrices or tensor parallelism.
`logprobs(..., depth=n)` is the model that ends after its first n layers, so that a wrong layer can be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from internalize.errors import UserError


class Reference(Protocol):
    """A model that gives log-probs of every next token."""

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        ...

    def logprobs(
        self, sequences: Sequence[Sequence[int]], temperature: float = 1.0, depth: int | None = None
    ) -> list[Tensor]:
        """[n, vocabulary] a sequence of n tokens: row t is the distribution of what follows token t."""
        ...


class TorchReference:
    """A dense Qwen3-type model in float64."""

    def __init__(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
        """
        Args:
            config: HF config.json.
            state: HF tensors.

        Raises:
            UserError: another architecture.
        """
        if config.get("model_type", "qwen3") != "qwen3":
            raise UserError(
                "the built-in reference computes dense Qwen3 models only",
                where="config.json: model_type",
                got=str(config.get("model_type")),
                fix="set numerics.engine.reference: transformers",
            )
        self.config = config
        self.state = {name: tensor.double() for name, tensor in state.items()}
        self.layers = int(config["num_hidden_layers"])

    def logprobs(
        self, sequences: Sequence[Sequence[int]], temperature: float = 1.0, depth: int | None = None
    ) -> list[Tensor]:
        """See `Reference`."""
        with torch.no_grad():
            return [self._one(tokens, temperature, depth) for tokens in sequences]

    def _one(self, tokens: Sequence[int], temperature: float, depth: int | None) -> Tensor:
        config, state = self.config, self.state
        width = int(config["head_dim"])
        theta = (config.get("rope_parameters") or {}).get("rope_theta", config.get("rope_theta", 10000.0))
        # in float32, as the model is defined: a more exact table would be another model
        frequency = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        angle = torch.outer(torch.arange(len(tokens), dtype=torch.float32), frequency)
        cos, sin = (f(torch.cat([angle, angle], -1)).double() for f in (torch.cos, torch.sin))
        embedding = state["model.embed_tokens.weight"]
        x = embedding[torch.tensor(list(tokens))]
        for layer in range(self.layers if depth is None else depth):
            x = self._layer(x, f"model.layers.{layer}.", cos, sin)
        x = self._norm(x, state["model.norm.weight"])
        head = embedding if config.get("tie_word_embeddings", False) else state["lm_head.weight"]
        return F.log_softmax(x @ head.T / temperature, -1)

    def _layer(self, x: Tensor, at: str, cos: Tensor, sin: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden]"""
        w, n, width = self.state, x.size(0), int(self.config["head_dim"])
        h = self._norm(x, w[at + "input_layernorm.weight"])
        q, k, v = ((h @ w[f"{at}self_attn.{p}_proj.weight"].T).view(n, -1, width) for p in "qkv")
        q, k = (self._norm(y, w[f"{at}self_attn.{p}_norm.weight"]) for y, p in ((q, "q"), (k, "k")))
        q, k = (y * cos[:, None] + _turned(y) * sin[:, None] for y in (q, k))
        k, v = (y.repeat_interleave(q.size(1) // k.size(1), 1) for y in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) * width**-0.5
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        mixed = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(n, -1)
        x = x + mixed @ w[at + "self_attn.o_proj.weight"].T
        h = self._norm(x, w[at + "post_attention_layernorm.weight"])
        gate, up = (h @ w[f"{at}mlp.{p}_proj.weight"].T for p in ("gate", "up"))
        return x + (F.silu(gate) * up) @ w[at + "mlp.down_proj.weight"].T

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + float(self.config["rms_norm_eps"])) * gain


class TransformersReference:
    """Whatever transformers makes of the folder, float32."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            UserError: transformers is not installed, or cannot load the folder.
        """
        try:
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise UserError(
                "the reference needs transformers",
                where="numerics.engine.reference",
                got=str(error),
                fix="pip install transformers, or set it to torch (dense Qwen3 models)",
            ) from error
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model.train(False)
        self._all = self.model.model.layers
        self.layers = len(self._all)

    def logprobs(
        self, sequences: Sequence[Sequence[int]], temperature: float = 1.0, depth: int | None = None
    ) -> list[Tensor]:
        """See `Reference`."""
        self.model.model.layers = self._all[:depth]
        self.model.config.num_hidden_layers = len(self.model.model.layers)
        found = []
        with torch.no_grad():
            for tokens in sequences:
                logits = self.model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
                found.append(F.log_softmax(logits.double() / temperature, -1))
        return found


def _turned(x: Tensor) -> Tensor:
    """The half turn of the rotary embedding."""
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)
