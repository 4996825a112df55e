"""Hand-made episodes on the bundled game, and a small engine with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from internalize.games.dipwheel import DipWheel, Rules
from internalize.games.session import GameSession
from internalize.games.shaping import shaped_return
from internalize.harness.episode import CallRecord, Episode, EpisodePlan, Outcome
from internalize.language.calls import bundled

RULES = Rules.of(
    {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
    {"a": "blue", "b": "red", "c": "green"},
)

Replies = Sequence[tuple[str, str | None]]
"""Think and call word of each reply; `say` for a text answer, None for a reply that cannot be parsed."""

Play = Callable[..., Episode]


@pytest.fixture(scope="session")
def game() -> DipWheel:
    return DipWheel(RULES)


@pytest.fixture(scope="session")
def play(game: DipWheel) -> Play:
    """Carries out hand-written replies through the real session, so that outcomes are the game's own."""

    def make(replies: Replies, level: int = 1, seed: int = 0, valid: bool = True) -> Episode:
        session = GameSession(game, level, seed)
        calls: list[CallRecord] = []
        journal: list[dict[str, Any]] = []
        for index, (think, word) in enumerate(replies):
            kind = "say" if word == "say" else "bad" if word is None else "call"
            if kind == "say":
                session.text_end()
            elif kind == "bad":
                session.unusable()
            else:
                call = bundled().expand(str(word))
                journal.append(session.call(call.tool, call.arguments()).model_dump())
            calls.append(
                CallRecord(
                    index=index,
                    prompt_ids=[1],
                    output_ids=[2],
                    logprobs=[-1.0],
                    finish="stop",
                    weight_version="t",
                    cached_tokens=0,
                    think=think,
                    kind=kind,  # type: ignore[arg-type]
                    call_word=word if kind == "call" else None,
                    observation="",
                )
            )
        found = session.outcome()
        components = shaped_return(found)
        returned = components.pop("return")
        outcome = Outcome(**{name: getattr(found, name) for name in Outcome.__slots__})
        plan = EpisodePlan(id=f"{level}-{seed}", level=level, seed=seed, group=0, index=0)
        return Episode(plan, calls, journal, outcome, components, returned, valid, None if valid else "context")

    return make


@pytest.fixture(scope="session")
def solved(game: DipWheel, play: Play) -> Callable[..., Episode]:
    """An episode of a player who states what it needs and does it."""

    def make(level: int, seed: int, top: str = "") -> Episode:
        replies = []
        state = game.start(level, seed)
        while not state.done:
            advice = game.advice(state)
            think = f"{top} need {' '.join(advice.need)} {' '.join(advice.facts)}".strip()
            replies.append((think, advice.call))
            state = game.apply(state, game.call_words()[advice.call])
        return play(replies, level, seed)

    return make


@pytest.fixture(scope="session")
def torch_state(game: DipWheel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Config and random weights of a tiny model over the game's vocabulary: what matters is the
    bookkeeping."""
    import torch

    from internalize.language.template import Template

    size = len(Template.of(game).vocab)
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
        "vocab_size": size,
        "max_position_embeddings": 256,
    }
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw) / shape[-1] ** 0.5

    state = {"model.embed_tokens.weight": normal(size, 32), "model.norm.weight": torch.ones(32)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            state[f"{at}{name}.weight"] = torch.ones(32)
        for name, rows in (("q", 32), ("k", 16), ("v", 16), ("o", 32)):
            state[f"{at}self_attn.{name}_proj.weight"] = normal(rows, 32)
        for name in ("q", "k"):
            state[f"{at}self_attn.{name}_norm.weight"] = torch.ones(16)
        for name, shape in (("gate", (48, 32)), ("up", (48, 32)), ("down", (32, 48))):
            state[f"{at}mlp.{name}_proj.weight"] = normal(*shape)
    return config, state
