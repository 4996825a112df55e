"""Arguments of a checkpoint: ours and Megatron's, read without running anything, held against config.json."""

from __future__ import annotations

import enum
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from internalize.checkpoints.arguments import ConfigMismatchError, check_config, read_common
from internalize.errors import CorruptPayload, MissingPayload

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 100,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 6,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
}
ARGS: dict[str, Any] = {
    "num_layers": 3,
    "hidden_size": 8,
    "ffn_hidden_size": 6,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 4,
    "norm_epsilon": 1e-6,
    "rotary_base": 1000000,
    "padded_vocab_size": 128,
    "untie_embeddings_and_output_weights": True,
    "normalization": "RMSNorm",
    "swiglu": True,
    "qk_layernorm": True,
    "add_bias_linear": False,
    "position_embedding_type": "rope",
}


class Backend(enum.Enum):
    FLASH = 1


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


def test_a_namespace_with_objects_becomes_plain_values(tmp_path: Path) -> None:
    args = Namespace(
        **ARGS,
        attention_backend=Backend.FLASH,
        params_dtype=torch.bfloat16,
        load=Path("/somewhere"),
        activation_func=torch.nn.functional.silu,
        betas=(0.9, 0.95),
        nested=Namespace(a=1),
        bomb=Bomb(tmp_path / "boom"),
        limit=float("inf"),
    )
    path = tmp_path / "common.pt"
    torch.save({"args": args, "iteration": 7, "checkpoint_version": 3.0, "weights": torch.zeros(3)}, path)
    common = read_common(path)
    assert json.loads(json.dumps(common)) == common
    assert (common["iteration"], common["checkpoint_version"]) == (7, 3.0)
    assert {key: common["args"][key] for key in ARGS} == ARGS
    assert common["args"]["betas"] == [0.9, 0.95]
    assert "bfloat16" in common["args"]["params_dtype"]
    assert "silu" in common["args"]["activation_func"]
    assert "somewhere" in common["args"]["load"]
    assert "Backend(1)" in common["args"]["attention_backend"]
    assert common["args"]["limit"] == "inf"
    assert not (tmp_path / "boom").exists()
    check_config(CONFIG, common["args"], "here")


def test_a_file_that_is_no_common_is_named(tmp_path: Path) -> None:
    path = tmp_path / "common.pt"
    with pytest.raises(MissingPayload):
        read_common(path)
    for content in (b"", b"PK\x03\x04junk"):
        path.write_bytes(content)
        with pytest.raises(CorruptPayload):
            read_common(path)
    torch.save([1], path)
    with pytest.raises(CorruptPayload):
        read_common(path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num_layers", 4, "args.num_layers 4"),
        ("ffn_hidden_size", 7, "args.ffn_hidden_size 7"),
        ("num_query_groups", 4, "args.num_query_groups 4"),
        ("kv_channels", 2, "args.kv_channels 2"),
        ("rotary_base", 10000, "args.rotary_base 10000"),
        ("padded_vocab_size", 96, "args.padded_vocab_size 96"),
        ("untie_embeddings_and_output_weights", False, "args.untie_embeddings_and_output_weights False"),
        ("normalization", "LayerNorm", "args.normalization 'LayerNorm'"),
        ("qk_layernorm", False, "args.qk_layernorm False"),
        ("norm_epsilon", 1e-5, "args.norm_epsilon 1e-05"),
    ],
)
def test_an_argument_of_another_model_is_named(name: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigMismatchError) as error:
        check_config(CONFIG, {**ARGS, name: value}, "common.pt")
    assert words in error.value.got
    assert error.value.where == "common.pt"


def test_arguments_that_are_not_mentioned_are_not_compared() -> None:
    check_config(CONFIG, {}, "")
    check_config({**CONFIG, "rope_theta": None, "rope_parameters": {"rope_theta": 1e6}}, ARGS, "")


def test_our_own_arguments_hold_a_config() -> None:
    check_config(CONFIG, {"model_config": {**CONFIG, "dtype": "float32"}}, "")
    with pytest.raises(ConfigMismatchError) as error:
        check_config(CONFIG, {"model_config": {**CONFIG, "vocab_size": 99, "head_dim": 8}}, "")
    assert "vocab_size 99" in error.value.got
    assert "head_dim 8" in error.value.got
