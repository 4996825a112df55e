"""Engines serve the trainer's tensors bit for bit; a stale one is named with its first tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from internalize.errors import GateFailed, UserError
from internalize.numerics.engines import local_engine
from internalize.numerics.sync import sync_gate
from internalize.numerics.verdict import Verdict, require


def moved(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor + 0.01 for name, tensor in weights.items()}


def gate(trained: dict[str, Tensor], **engines: Any) -> Verdict:
    return sync_gate(trained, {name: engine.served_digests for name, engine in engines.items()}, torch.float32)


@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_is_served_as_it_was_trained(
    config: dict[str, Any], weights: dict[str, Tensor], tied: bool
) -> None:
    config["tie_word_embeddings"] = tied
    if not tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"] * 2
    verdict = gate(weights, one=local_engine(config, weights, 1, 8))
    assert verdict.passed
    assert f"all {len(weights)} hashes equal" in verdict.cases[0].note


def test_stale_weights_in_one_engine_are_named(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    one, two = (local_engine(config, weights, 1, 8) for _ in range(2))
    after = moved(weights)
    one.update_weights(after, "1")
    verdict = gate(after, one=one, two=two)
    assert [case.passed for case in verdict.cases] == [True, False]
    with pytest.raises(GateFailed) as failure:
        require([verdict])
    said = str(failure.value)
    assert "model.embed_tokens.weight of engine `two`, [40, 32]" in said
    assert f"{len(weights)} of {len(weights)} tensors differ" in said


def test_one_stale_tensor_is_named(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    after = moved(weights)
    engine = local_engine(config, {**after, name: weights[name]}, 1, 8)
    (case,) = gate(after, only=engine).cases
    assert (case.layer, case.shape, case.error) == (f"{name} of engine `only`", "[48, 32]", 1.0)


def test_an_engine_without_weights_is_no_pass(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    from internalize.engine.local import LocalEngine

    with pytest.raises(UserError, match="no weights yet"):
        gate(weights, empty=LocalEngine(config, slots=1, max_len=8))
