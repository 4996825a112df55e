"""Meta-training on a very small recipe: it learns, it is deterministic, it stops when its rule says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from internalize.base.pretrain import initial_weights, pretrain
from internalize.base.recipe import Recipe
from internalize.engine.qwen3 import hf_shapes
from internalize.games.dipwheel import DipWheel
from internalize.language.template import Template

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "layers": 1,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 16,
    "intermediate_size": 32,
    "conversations": 4,
    "steps": 12,
    "lr": 2e-2,
    "warmup": 2,
    "check_every": 6,
    "check_episodes": 4,
}


@pytest.fixture(scope="module")
def trained(game: DipWheel) -> Any:
    return pretrain(Recipe(**SMALL), game, Template.of(game))


def test_it_learns(trained: Any) -> None:
    assert trained.losses[-1] < 0.8 * trained.losses[0]


def test_equal_recipes_give_equal_weights_whatever_the_checks_draw(game: DipWheel, trained: Any) -> None:
    again = pretrain(Recipe(**{**SMALL, "check_every": 5, "check_episodes": 8}), game, Template.of(game))
    assert again.losses == trained.losses
    assert all(torch.equal(again.state[name], trained.state[name]) for name in trained.state)


def test_another_seed_gives_other_weights(game: DipWheel, trained: Any) -> None:
    other = pretrain(Recipe(**{**SMALL, "seed": 5, "steps": 1}), game, Template.of(game))
    assert not torch.equal(other.state["model.norm.weight"], trained.state["model.norm.weight"])
    assert other.losses[0] != trained.losses[0]


def test_it_checks_every_few_steps_and_at_the_end(trained: Any) -> None:
    assert [check.step for check in trained.checks] == [6, 12]
    row = trained.checks[0].row()
    assert row["teacher_episodes"] == row["base_episodes"] == 4


def test_the_stop_rule_ends_the_training(game: DipWheel) -> None:
    rows: list[dict[str, Any]] = []
    recipe = Recipe(**{**SMALL, "stop_teacher": 0.0, "stop_base": 1.0})
    assert pretrain(recipe, game, Template.of(game), rows.append).steps == 6
    assert [row["step"] for row in rows if "teacher_clears" in row] == [6]


def test_initial_weights_are_those_of_the_recipe(template: Template) -> None:
    recipe = Recipe()
    config = recipe.model_config_dict(len(template.vocab), template.stop_id, 0)
    state = initial_weights(config, recipe)
    assert {name: tuple(t.shape) for name, t in state.items()} == dict(hf_shapes(config))
    assert float(state["model.embed_tokens.weight"].std()) == pytest.approx(0.05, rel=0.05)
    assert float(state["model.layers.0.self_attn.q_proj.weight"].std()) == pytest.approx(96**-0.5, rel=0.05)
    assert float(state["model.layers.2.mlp.down_proj.weight"].std()) == pytest.approx((6 * 256) ** -0.5, rel=0.05)
    assert state["model.layers.1.self_attn.k_norm.weight"].tolist() == pytest.approx([1.7] * 32)
    assert sum(t.numel() for t in state.values()) < 350_000
