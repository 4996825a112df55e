"""The float64 reference is transformers' model, at every depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from internalize.errors import UserError
from internalize.numerics.reference import TorchReference, TransformersReference

SEQUENCES = [[3], [5, 1, 7, 7, 20, 39, 0, 2], list(range(30))]


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_transformers_model(config: dict[str, Any], weights: dict[str, Tensor], folder: Path, tied: bool) -> None:
    from safetensors.torch import save_file

    from internalize.files import write_json

    if not tied:
        config["tie_word_embeddings"] = False
        weights["lm_head.weight"] = torch.randn(40, 32, generator=torch.Generator().manual_seed(5)) * 0.3
        write_json(folder / "config.json", config)
        save_file(weights, folder / "model.safetensors")
    mine, theirs = TorchReference(config, weights), TransformersReference(folder)
    assert mine.layers == theirs.layers == 3
    for depth in (None, 2, 1):
        for a, b in zip(mine.logprobs(SEQUENCES, 0.7, depth), theirs.logprobs(SEQUENCES, 0.7, depth), strict=True):
            assert torch.allclose(a, b, atol=2e-5)


def test_another_architecture_is_refused(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    with pytest.raises(UserError, match="dense Qwen3"):
        TorchReference({**config, "model_type": "qwen3_5"}, weights)
