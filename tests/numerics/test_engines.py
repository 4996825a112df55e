"""The engine gate finds a wrong weight behind the engine's own API, and the layer that it lies in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from torch import Tensor

from internalize.engine.local import LocalEngine
from internalize.errors import GateFailed
from internalize.numerics.engines import Subject, built, engine_gate, fixed_prompts, local_engine
from internalize.numerics.reference import TorchReference
from internalize.numerics.verdict import require

PROMPTS = fixed_prompts(40, [2, 9, 21])
LIMITS = {"new_tokens": 6, "tolerance": 1e-3}


def honest(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> LocalEngine:
    return local_engine(config, state, 2, 32)  # fewer slots than prompts


def transposing(name: str) -> Any:
    """A loader that transposes one weight."""

    def build(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> LocalEngine:
        return honest(config, {key: t.T.contiguous() if key == name else t for key, t in state.items()})

    return build


def test_a_right_engine_passes(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    verdict = engine_gate([built("tp 1", config, weights, honest)], TorchReference(config, weights), PROMPTS, **LIMITS)
    assert verdict.passed
    assert 0 < verdict.cases[0].error < 1e-4


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_one_transposed_weight_is_found_with_its_layer(
    layer: int, config: dict[str, Any], weights: dict[str, Tensor]
) -> None:
    engines = [
        built("tp 1", config, weights, honest),
        built("tp 2", config, weights, transposing(f"model.layers.{layer}.self_attn.o_proj.weight")),
    ]
    verdict = engine_gate(engines, TorchReference(config, weights), PROMPTS, **LIMITS)
    assert [case.passed for case in verdict.cases] == [True, False]
    with pytest.raises(GateFailed) as failure:
        require([verdict])
    said = str(failure.value)
    assert f"engine `tp 2`: decoder layer {layer}, 3 prompts of 2+9+21 tokens" in said
    assert "log-prob error" in said


def test_an_error_outside_the_layers_is_told_apart(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    def build(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> LocalEngine:
        return honest(config, {**state, "model.norm.weight": state["model.norm.weight"] * 1.1})

    (case,) = engine_gate(
        [built("a", config, weights, build)], TorchReference(config, weights), PROMPTS, **LIMITS
    ).cases
    assert "embedding, final norm or head" in case.layer


def test_an_engine_that_cannot_be_cut_is_still_judged(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    wrong = transposing("model.layers.1.self_attn.o_proj.weight")(config, weights)
    (case,) = engine_gate([Subject("far", wrong)], TorchReference(config, weights), PROMPTS, **LIMITS).cases
    assert not case.passed
    assert "the layer is not known" in case.layer
