"""The recipe: learning rates by step, and the model it describes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from internalize.base.recipe import Mix, Recipe


@given(st.integers(0, 2399))
def test_rates_stay_between_zero_and_the_peak(step: int) -> None:
    recipe = Recipe(steps=2400)
    assert 0 < recipe.learning_rate(step) <= recipe.lr


def test_the_rate_warms_up_and_falls_to_its_floor() -> None:
    recipe = Recipe(steps=1000, warmup=50)
    rates = [recipe.learning_rate(step) for step in range(1000)]
    assert rates[0] < rates[10] < rates[49]
    assert all(a > b for a, b in pairwise(rates[50:]))
    assert rates[-1] == pytest.approx(recipe.lr * recipe.lr_floor, rel=1e-3)


def test_the_first_steps_do_not_depend_on_a_clock_or_on_when_the_training_stops() -> None:
    assert Recipe().learning_rate(7) == Recipe(check_every=3, stop_teacher=0.1).learning_rate(7)


def test_the_model_is_the_one_that_the_record_of_the_base_names() -> None:
    config = Recipe().model_config_dict(102, 4, 0)
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["vocab_size"] == 102
    assert (config["hidden_size"], config["num_hidden_layers"], config["head_dim"]) == (96, 3, 32)
    assert config["tie_word_embeddings"] is True


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"lr": -1.0}, {"betas": [0.9]}, {"stepz": 3}, {"mix": {"known": 2.0}}])
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate(wrong)


def test_the_default_shares_are_a_whole() -> None:
    mix = Mix()
    assert mix.known + mix.unknown + mix.chat == pytest.approx(1.0)
