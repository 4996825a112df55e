from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from internalize.checkpoints import hf_names
from internalize.checkpoints.hf_names import TensorMismatchError

Config = dict[str, Any]


@st.composite
def configs(draw: st.DrawFn) -> Config:
    groups = draw(st.integers(1, 3))
    return {
        "vocab_size": draw(st.integers(2, 9)),
        "hidden_size": draw(st.sampled_from([4, 6])),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": groups * draw(st.integers(1, 3)),
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([2, 4])),
        "intermediate_size": draw(st.integers(1, 7)),
        "tie_word_embeddings": draw(st.booleans()),
    }


SMALL: Config = {
    "vocab_size": 5,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 2,
    "intermediate_size": 3,
    "tie_word_embeddings": True,
}


def numbered(config: Config) -> dict[str, Tensor]:
    """Every element of the model another number."""
    state, start = {}, 0
    for entry in hf_names.entries(config):
        for name, shape in zip(entry.hf, entry.shapes, strict=True):
            count = torch.Size(shape).numel()
            state[name] = torch.arange(start, start + count, dtype=torch.float32).reshape(shape)
            start += count
    return state


@settings(max_examples=40, deadline=None)
@given(configs())
def test_there_and_back_is_the_same_bits(config: Config) -> None:
    state = numbered(config)
    back = hf_names.from_megatron(hf_names.to_megatron(state, config), config)
    assert list(back) == list(state)
    assert all(torch.equal(back[name], state[name]) for name in state)
    assert all(tensor.is_contiguous() for tensor in back.values())


def test_qkv_rows_are_interleaved_by_key_value_group() -> None:
    """Group g holds its queries, then its key, then its value, as Megatron splits them over ranks."""
    state = numbered(SMALL)
    fused = hf_names.to_megatron(state, SMALL)["decoder.layers.1.self_attention.linear_qkv.weight"]
    q, k, v = (state[f"model.layers.1.self_attn.{x}_proj.weight"] for x in "qkv")
    assert torch.equal(fused, torch.cat([q[:4], k[:2], v[:2], q[4:], k[2:], v[2:]]))
    fc1 = hf_names.to_megatron(state, SMALL)["decoder.layers.0.mlp.linear_fc1.weight"]
    assert torch.equal(fc1[:3], state["model.layers.0.mlp.gate_proj.weight"])


def test_exported_tensors_are_copies() -> None:
    tensors = hf_names.to_megatron(numbered(SMALL), SMALL)
    exported = hf_names.from_megatron(tensors, SMALL)
    before = {name: tensor.clone() for name, tensor in exported.items()}
    for tensor in tensors.values():
        tensor.zero_()
    assert all(torch.equal(exported[name], before[name]) for name in before)


def test_a_missing_an_unexpected_and_a_misshapen_tensor_are_named() -> None:
    for change, words in (
        (lambda s: s.pop("model.norm.weight"), "missing model.norm.weight"),
        (lambda s: s.update({"model.extra": torch.zeros(3)}), "unexpected model.extra"),
        (lambda s: s.update({"model.norm.weight": torch.zeros(3)}), "model.norm.weight is [3], not [4]"),
    ):
        state = numbered(SMALL)
        change(state)
        with pytest.raises(TensorMismatchError) as error:
            hf_names.to_megatron(state, SMALL)
        assert words in error.value.got


def test_a_tied_model_may_carry_its_head_and_an_untied_one_must() -> None:
    state = {**numbered(SMALL), "lm_head.weight": torch.zeros(5, 4)}
    hf_names.check_hf(state, SMALL)
    untied = {**SMALL, "tie_word_embeddings": False}
    hf_names.check_hf(state, untied)
    with pytest.raises(TensorMismatchError):
        hf_names.check_hf(numbered(SMALL), untied)
