"""A model folder as the hub has them, made for tests: a Qwen3 with a byte-level BPE and a chat template of its own.

The weights are a table of which token follows which, so the untrained model thinks a word and makes one of a few calls;
it is a whole Qwen3 all the same, and training moves all of it. Template and text are written here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
WORDS = ("hm", "left", "paint")
CHAT = """
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif %}
{{- 'Tools:\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n[result]\\n' + message.content + '\\n[/result]<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n' }}{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
{{- '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def call_text(action: str, x: int | None = None, y: int | None = None) -> str:
    """A tool call as the model writes it."""
    arguments = {"action": action, **({} if x is None else {"x": x, "y": y})}
    return json.dumps({"name": "act", "arguments": arguments})


def make_tokenizer(folder: Path, text: Sequence[str], calls: Sequence[str]) -> dict[str, int]:
    """Writes tokenizer files; returns the vocabulary. Each of `calls` is one token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=520, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.add_tokens([AddedToken(call, normalized=False) for call in [*calls, *(f" {w}" for w in WORDS)]])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "clean_up_tokenization_spaces": False}))
    (folder / "chat_template.jinja").write_text(CHAT)
    return dict(tokenizer.get_vocab(with_added_tokens=True))


def make_model(folder: Path, text: Sequence[str], calls: Mapping[str, float]) -> Path:
    """A model folder.

    Args:
        text: what the tokenizer is trained on.
        calls: what the model calls, and how likely.
    """
    import math

    import torch
    from safetensors.torch import save_file

    from internalize.engine.qwen3 import hf_shapes

    vocab = make_tokenizer(folder, text, list(calls))
    size = len(vocab) + -len(vocab) % 16
    end = vocab["<|im_end|>"]
    config: dict[str, Any] = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": size,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "max_position_embeddings": 16384,
        "vocab_size": size,
        "eos_token_id": end,
        "pad_token_id": 0,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end, "pad_token_id": 0}))
    draw = torch.Generator().manual_seed(0)
    state = {name: 0.02 * torch.randn(shape, generator=draw) for name, shape in hf_shapes(config).items()}
    for name in state:
        if name.endswith("norm.weight"):
            state[name] = torch.ones_like(state[name])
    after = torch.full((size, size), -16.0)  # row: the next token; column: the last one
    after[end] = -2.0
    newline, (think, closed, opened, done) = vocab["Ċ"], (vocab[token] for token in SPECIAL[3:])
    words = [vocab[f" {word}"] for word in WORDS]
    likely = {newline: {think: 1.0}, think: dict.fromkeys(words, 1 / 3), closed: {opened: 1.0}, done: {end: 1.0}}
    likely |= {word: {closed: 0.8, **dict.fromkeys(words, 0.2 / 3)} for word in words}
    likely |= {opened: {vocab[call]: share for call, share in calls.items()}}
    likely |= {vocab[call]: {done: 1.0} for call in calls}
    for last, shares in likely.items():
        after[end, last] = -16.0
        for token, share in shares.items():
            after[token, last] = math.log(share)
    state["model.embed_tokens.weight"] = torch.eye(size)
    state["lm_head.weight"] = after / math.sqrt(size)  # the last norm makes a one-hot row that long
    for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
        state[f"model.layers.0.{name}"] *= 0.0
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")
    return folder
