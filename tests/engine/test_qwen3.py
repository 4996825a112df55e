from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from internalize.engine.local import LocalEngine
from internalize.engine.protocol import SamplingParams
from internalize.engine.qwen3 import Qwen3, Qwen3Weights, hf_shapes, right_pad
from internalize.errors import UserError

State = Callable[[int], dict[str, Tensor]]


@pytest.fixture(scope="module")
def reference(config: dict[str, Any], make_state: State) -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM(Qwen3Config(**config)).eval()
    missing, unexpected = model.load_state_dict(make_state(0), strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    model.tie_weights()
    return model


def _tokens(seed: int, *lengths: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 61, (n,), generator=generator).tolist() for n in lengths]


def _reference_logits(reference: Qwen3ForCausalLM, ids: list[int]) -> Tensor:
    with torch.no_grad():
        return reference(torch.tensor([ids])).logits[0]


def test_full_logits_equal_transformers(config: dict[str, Any], make_state: State, reference: Qwen3ForCausalLM) -> None:
    rows = _tokens(1, 1, 7, 40, 100)
    ids, lengths = right_pad(rows)
    ours = Qwen3(config, 128).full(Qwen3Weights.from_hf(make_state(0), config), ids)
    for row, tokens in enumerate(rows):
        theirs = _reference_logits(reference, tokens)
        assert theirs.std() > 0.5  # a near-uniform model would agree by itself
        assert (ours[row, : lengths[row]] - theirs).abs().max() <= 1e-5


def test_ragged_extension_equals_transformers(
    config: dict[str, Any], make_state: State, reference: Qwen3ForCausalLM
) -> None:
    """Two appends at different offsets a row, each right-padded, with rubbish left behind the real tokens."""
    model, weights = Qwen3(config, 128), Qwen3Weights.from_hf(make_state(0), config)
    rows = _tokens(2, 30, 9, 21)
    first = [12, 1, 20]
    cache = model.new_cache(3, 64)
    for keys, values in cache:
        keys.uniform_(-9, 9)
        values.uniform_(-9, 9)
    ids, lengths = right_pad([r[:n] for r, n in zip(rows, first, strict=True)])
    one = model.extend(weights, ids, torch.zeros(3, dtype=torch.long), lengths - 1, cache)
    ids, lengths = right_pad([r[n:] for r, n in zip(rows, first, strict=True)])
    two = model.extend(weights, ids, torch.tensor(first), lengths - 1, cache)
    for i, (tokens, n) in enumerate(zip(rows, first, strict=True)):
        theirs = _reference_logits(reference, tokens)
        assert (one[i] - theirs[n - 1]).abs().max() <= 1e-5
        assert (two[i] - theirs[-1]).abs().max() <= 1e-5


def test_engine_conversation_logprobs_equal_transformers(
    config: dict[str, Any], make_state: State, reference: Qwen3ForCausalLM
) -> None:
    """Three calls over a reused cache; the log-probs of each are HF's over the whole conversation, at
    temperature 0.8."""
    engine = LocalEngine(config, slots=4, max_len=128)
    engine.update_weights(make_state(0), "v")
    prompts = _tokens(4, 6, 19, 11)
    extra: list[list[int]] = []
    sampling = SamplingParams(temperature=0.8, max_new_tokens=8, stop_ids=(5,))
    for turn in range(3):
        rngs = [np.random.default_rng([turn, i]) for i in range(3)]
        done = engine.generate(prompts, ["a", "b", "c"], rngs, sampling)
        for i, (prompt, completion) in enumerate(zip(prompts, done, strict=True)):
            whole = prompt + completion.output_ids
            table = torch.log_softmax(_reference_logits(reference, whole) / 0.8, -1)[len(prompt) - 1 : -1]
            theirs = table.gather(1, torch.tensor(completion.output_ids)[:, None])[:, 0]
            assert (theirs - torch.tensor(completion.logprobs)).abs().max() <= 1e-5
            assert completion.cached_tokens == (len(prompt) - 1 - len(extra[i]) if turn else 0)
        extra = _tokens(10 + turn, 3, 5, 4)
        prompts = [p + c.output_ids + x for p, c, x in zip(prompts, done, extra, strict=True)]


def test_rope_theta_is_read_from_both_config_forms(config: dict[str, Any]) -> None:
    old = {**config, "rope_theta": 5e5}
    new = {k: v for k, v in config.items() if k != "rope_theta"} | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}
    }
    assert torch.equal(Qwen3(old, 16).cos, Qwen3(new, 16).cos)
    assert not torch.equal(Qwen3(old, 16).cos, Qwen3(config, 16).cos)


def test_untied_head_is_used(config: dict[str, Any], make_state: State) -> None:
    untied = {**config, "tie_word_embeddings": False}
    state = {**make_state(0), "lm_head.weight": torch.zeros(61, 48)}
    ids, _ = right_pad(_tokens(3, 5))
    assert Qwen3(untied, 16).full(Qwen3Weights.from_hf(state, untied), ids).abs().max() == 0.0


def test_bf16_state_is_taken_as_fp32(config: dict[str, Any], make_state: State) -> None:
    state = {name: tensor.bfloat16() for name, tensor in make_state(0).items()}
    weights = Qwen3Weights.from_hf(state, config)
    assert weights.embed.dtype == torch.float32
    assert torch.equal(weights.embed, state["model.embed_tokens.weight"].float())


def test_shapes_match_transformers(config: dict[str, Any], reference: Qwen3ForCausalLM) -> None:
    theirs = {n: tuple(t.shape) for n, t in reference.state_dict().items() if n != "lm_head.weight"}
    assert hf_shapes(config) == theirs


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type"),
    ],
)
def test_other_architectures_are_refused_by_name(config: dict[str, Any], change: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        Qwen3({**config, **change}, 16)


def test_missing_key_tensor_and_wrong_shape_are_named(config: dict[str, Any], make_state: State) -> None:
    with pytest.raises(UserError, match="head_dim"):
        Qwen3({k: v for k, v in config.items() if k != "head_dim"}, 16)
    state = make_state(0)
    del state["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.up_proj"):
        Qwen3Weights.from_hf(state, config)
    with pytest.raises(UserError, match=r"model\.norm"):
        Qwen3Weights.from_hf({**make_state(0), "model.norm.weight": torch.ones(3)}, config)
