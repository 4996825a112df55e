"""Episodes made by hand, and a random base folder over the bundled game's vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from internalize.engine.qwen3 import hf_shapes
from internalize.files import write_json
from internalize.games import make_game
from internalize.harness.episode import CallRecord, Episode, EpisodePlan, Outcome
from internalize.language.template import Template

GAME = {
    "kind": "dipwheel",
    "rules": {
        "stations": {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
        "pots": {"a": "blue", "b": "red", "c": "green"},
    },
}


@pytest.fixture(scope="session")
def game_settings() -> dict[str, Any]:
    return GAME


def _episode(returned: float, calls: int = 2, group: int = 0, valid: bool = True, seed: int | None = None) -> Episode:
    """Call k: prompt = everything so far and two tokens, output = three tokens, all different."""
    history: list[int] = []
    records = []
    for k in range(calls):
        prompt = [*history, 100 + k, 200 + k]
        output = [300 + k, 400 + k, 500 + k]
        logprobs = [-0.1 - k, -0.2 - k, -0.3 - k]
        call = CallRecord(k, prompt, output, logprobs, "stop", "v", len(history), "", "call", "look", "")
        records.append(call)
        history = prompt + output
    return Episode(
        plan=EpisodePlan(f"g{group}-{returned}-{calls}", 1, group if seed is None else seed, group, 0),
        calls=records,
        journal=[],
        outcome=Outcome(returned > 0, False, False, calls, 0, 0, 8, 0.0, 1.0),
        components={},
        returned=returned,
        valid=valid,
    )


@pytest.fixture(scope="session")
def make_episode() -> Callable[..., Episode]:
    return _episode


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    template = Template.of(make_game(**GAME))
    template.vocab.write(folder)
    config = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 48,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "tie_word_embeddings": True,
        "vocab_size": len(template.vocab),
    }
    write_json(folder / "config.json", config)
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, Sequence[int]] = dict(hf_shapes(config))
    state = {n: torch.randn(s, generator=generator) * 0.15 + (len(s) == 1) for n, s in shapes.items()}
    save_file(state, folder / "model.safetensors")
    return folder
