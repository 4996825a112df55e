"""A tiny model folder, and engines that are asked like those of other processes but live in this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from internalize.checkpoints.digest import tensor_digests
from internalize.engine.qwen3 import hf_shapes
from internalize.runtime.engines import EngineHost

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
    "vocab_size": 40,
    "max_position_embeddings": 128,
}


def random_state(seed: int, config: dict[str, Any] = CONFIG) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.3 + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in hf_shapes(config).items()
    }


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    save_file(random_state(0), folder / "model.safetensors")
    return folder


class LocalHosts:
    """`engines.Hosts` in this process."""

    def __init__(self, model: Path, count: int, slots: int = 8) -> None:
        self.hosts = [EngineHost(model, slots, 64) for _ in range(count)]
        self.asked: list[tuple[str, list[int]]] = []

    @property
    def names(self) -> list[str]:
        return [f"engine {i}" for i in range(len(self.hosts))]

    def ask(self, name: str, arguments: dict[int, tuple[Any, ...]]) -> list[Any]:
        self.asked.append((name, list(arguments)))
        return [self.hosts[i].call(name, *given)[0] for i, given in arguments.items()]


class Publisher:
    """A trainer of two stages that writes given weights."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state

    def publish(self, folder: Path, dtype: str) -> dict[str, dict[str, str]]:
        names, written = list(self.state), {}
        for stage, part in enumerate((names[:7], names[7:])):
            tensors = {name: self.state[name].to(getattr(torch, dtype)) for name in part}
            save_file(tensors, folder / f"model-{stage}.safetensors")
            written[f"model-{stage}.safetensors"] = tensor_digests(tensors)
        return written


@pytest.fixture
def make_hosts(model: Path) -> Any:
    return lambda count, **options: LocalHosts(model, count, **options)


@pytest.fixture
def publisher() -> Publisher:
    return Publisher(random_state(1))
