"""A small random Qwen3 whose outputs are far from uniform, so that wrong attention or positions show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from internalize.engine.local import LocalEngine
from internalize.engine.qwen3 import hf_shapes
from internalize.engine.server import Served, serve

VOCAB = 61


@pytest.fixture(scope="session")
def config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "tie_word_embeddings": True,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
    }


def _random_state(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in hf_shapes(config).items():
        noise = torch.randn(shape, generator=generator) * 0.2
        state[name] = noise + 1.0 if len(shape) == 1 else noise
    return state


@pytest.fixture(scope="session")
def make_state(config: dict[str, Any]) -> Callable[[int], dict[str, Tensor]]:
    return lambda seed: _random_state(config, seed)


@pytest.fixture
def make_engine(config: dict[str, Any], make_state: Callable[[int], dict[str, Tensor]]) -> Callable[..., LocalEngine]:
    def make(slots: int = 8, max_len: int = 128, seed: int = 0) -> LocalEngine:
        engine = LocalEngine(config, slots=slots, max_len=max_len)
        engine.update_weights(make_state(seed), f"v{seed}")
        return engine

    return make


@pytest.fixture(scope="session")
def long_config(config: dict[str, Any]) -> dict[str, Any]:
    """Room for calls that are long enough to be interrupted."""
    return config | {"max_position_embeddings": 2048}


@pytest.fixture(scope="session")
def folders(
    tmp_path_factory: pytest.TempPathFactory,
    long_config: dict[str, Any],
    make_state: Callable[[int], dict[str, Tensor]],
) -> list[Path]:
    """HF folders of `make_state(0)` and `make_state(1)`."""
    made = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp(f"model{seed}")
        (folder / "config.json").write_text(json.dumps(long_config))
        save_file(make_state(seed), folder / "model.safetensors")
        made.append(folder)
    return made


@pytest.fixture(scope="session")
def served(folders: list[Path]) -> Iterator[Served]:
    """One engine process on `folders[0]`; tests put its weights back."""
    with serve(folders[0], slots=32) as running:
        yield running
