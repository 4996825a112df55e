from __future__ import annotations

from typing import Any

import pytest
import torch
from training_examples import random_weights

from internalize.train.batch import TrainSequence
from internalize.train.forward import forward_step
from internalize.train.losses import LossSpec, Normalisers
from internalize.train.model import ModelConfigError, check_config
from internalize.train.packing import pack
from internalize.train.shim import cpu_stand_ins


@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_transformers_qwen3(make_trainer: Any, config: dict[str, Any], tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config["tie_word_embeddings"] = tied
    weights = random_weights(config, 2)
    reference = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config, attn_implementation="eager")).eval()
    missing = reference.load_state_dict(weights, strict=False).missing_keys
    assert missing == (["lm_head.weight"] if tied else [])
    reference.tie_weights()
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(0, 40, (n,), generator=generator).tolist() for n in (30, 3, 1, 57)]
    batches = pack([TrainSequence([*t, 0], [0.0] * len(t) + [1.0]) for t in texts], 1000)
    trainer = make_trainer(weights)
    with torch.no_grad(), cpu_stand_ins():
        logits, _ = forward_step(LossSpec(), Normalisers(1, 1, 1), iter(batches), trainer.model)
    with torch.no_grad():
        expected = torch.cat([reference(torch.tensor([t])).logits[0] for t in texts])
    assert logits.shape == (1, 91, 40)
    assert float((logits[0] - expected).abs().max()) <= 1e-5


BAD = {
    "model_type": "llama",
    "vocab_size": 0,
    "head_dim": None,
    "num_key_value_heads": 3,
    "hidden_act": "gelu",
    "attention_bias": True,
    "use_sliding_window": True,
    "rope_scaling": {"rope_type": "yarn"},
    "rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4},
    "rope_theta": -1.0,
}


@pytest.mark.parametrize("key", BAD)
def test_a_config_that_would_be_computed_differently_is_refused_by_key(config: dict[str, Any], key: str) -> None:
    check_config(config)
    config[key] = BAD[key]
    with pytest.raises(ModelConfigError) as error:
        check_config(config)
    assert key in error.value.where
    assert error.value.expected
