"""Write the small random model of the engine tests as a folder that an engine can serve: `python model.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from internalize.engine.qwen3 import hf_shapes

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
    "vocab_size": 61,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
generator = torch.Generator().manual_seed(0)
state = {}
for name, shape in hf_shapes(CONFIG).items():
    noise = torch.randn(shape, generator=generator) * 0.2
    state[name] = noise + 1.0 if len(shape) == 1 else noise
(folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
