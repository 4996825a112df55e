"""The bundled game, its template, a small random model over its vocabulary, and an engine that says what it
is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion, FinishReason, SamplingParams
from internalize.engine.qwen3 import hf_shapes
from internalize.games import make_game
from internalize.games.protocol import Game
from internalize.language.template import Template

STATIONS = {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"}
POTS = {"a": "blue", "b": "red", "c": "green"}


@pytest.fixture(scope="session")
def game() -> Game:
    return make_game("dipwheel", rules={"stations": STATIONS, "pots": POTS})


@pytest.fixture
def template(game: Game) -> Template:
    return Template.of(game)


@pytest.fixture
def sampling(template: Template) -> SamplingParams:
    return SamplingParams(temperature=1.0, max_new_tokens=16, stop_ids=(template.stop_id,))


@pytest.fixture
def random_engine(template: Template) -> Callable[..., LocalEngine]:
    """Random weights; call words and stops are made likely enough that episodes contain every kind of
    reply."""

    def make(seed: int = 0, slots: int = 32, max_len: int = 512) -> LocalEngine:
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
        generator = torch.Generator().manual_seed(seed)
        state = {}
        for name, shape in hf_shapes(config).items():
            noise = torch.randn(shape, generator=generator) * 0.15
            state[name] = noise + 1.0 if len(shape) == 1 else noise
        engine = LocalEngine(config, slots=slots, max_len=max_len)
        engine.update_weights(state, f"random{seed}")
        return engine

    return make


class ScriptedEngine:
    """Says the scripted replies of each session in turn (the last one forever); keeps the prompts it saw."""

    def __init__(
        self,
        script: Mapping[str, Sequence[Sequence[int]]],
        slots: int = 8,
        max_len: int = 512,
        finish: FinishReason | None = None,
    ) -> None:
        self.script, self.slots, self.max_len, self.finish = script, slots, max_len, finish
        self.prompts: dict[str, list[list[int]]] = {}
        self.uniforms: dict[str, list[float]] = {}
        self.held: set[str] = set()
        self.most = 0

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sessions: Sequence[str],
        rngs: Sequence[np.random.Generator],
        sampling: SamplingParams,
    ) -> list[Completion]:
        self.held.update(sessions)
        self.most = max(self.most, len(sessions))
        out = []
        for prompt, session, rng in zip(prompts, sessions, rngs, strict=True):
            seen = self.prompts.setdefault(session, [])
            seen.append(list(prompt))
            self.uniforms.setdefault(session, []).append(float(rng.random()))
            replies = self.script[session]
            ids = list(replies[min(len(seen), len(replies)) - 1])[: sampling.max_new_tokens]
            finish: FinishReason = self.finish or ("stop" if ids[-1] in sampling.stop_ids else "length")
            out.append(Completion(ids, [-0.5] * len(ids), finish, "scripted", len(prompt) - 1))
        return out

    def release(self, sessions: Sequence[str]) -> None:
        self.held.difference_update(sessions)


@pytest.fixture(scope="session")
def scripted() -> Callable[..., Any]:
    return ScriptedEngine
