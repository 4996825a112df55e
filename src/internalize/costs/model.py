"""The cost model as arithmetic on specs.

Invariant: a price depends on the settings of the job and on `cost` alone, and everything here is plain data, so that a
running job can price its next step as the plan did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

GIB = 1 << 30
TB = 10**12
HOUR = 3600.0
HUB_BYTES, LOCAL_BYTES = 14.0, 12.0
"""Bytes a parameter of a checkpoint: bf16 weights 2 + float32 master 4 + two float32 moments 8 (the published record:
351 GiB for 27 B parameters); float32 weights 4 + two moments 8."""
CHECKPOINT_SIDE_FILES = 4
"""`.metadata`, `common.pt`, `metadata.json` and the tracker."""
FILES_PER_RANK = 2
"""Files a rank writes into a torch_dist checkpoint (Megatron's writer: two a process)."""


@dataclass(frozen=True)
class CostModel:
    """Seconds, bytes and files of what has not been measured.

    Args:
        cost: the study's `cost`, as plain values.
        parameters: parameters of the model.
        bytes_per_parameter: bytes a parameter in a checkpoint.
    """

    cost: dict[str, Any]
    parameters: int
    bytes_per_parameter: float

    def plain(self) -> dict[str, Any]:
        """The model as JSON values."""
        return asdict(self)

    def checkpoint_bytes(self) -> int:
        """Bytes of one checkpoint, weights and optimizer state."""
        return round(self.parameters * self.bytes_per_parameter)

    def step_bytes(self) -> int:
        """Bytes that a step leaves behind."""
        return self.checkpoint_bytes() + round(float(self.cost["step_mb"]) * 1e6)

    def step_files(self, ranks: int = 1) -> int:
        """Files that a step leaves behind when `ranks` processes save its checkpoint."""
        return int(self.cost["step_files"]) + CHECKPOINT_SIDE_FILES + FILES_PER_RANK * ranks

    def play_seconds(self, episodes: int) -> float:
        """Seconds to play `episodes`, `episodes_at_once` side by side."""
        return float(math.ceil(episodes / self.cost["episodes_at_once"]) * self.cost["episode_s"])

    def step_seconds(self, spec: Mapping[str, Any]) -> float:
        """Seconds of a step with this spec (see `arms.settings`), start-up of its job not counted."""
        seconds = self.checkpoint_bytes() / self._write_speed()
        if spec["phase"] == "sft":
            return seconds + int(spec["sft"]["optimizer_steps"]) * float(self.cost["sft_optimizer_step_s"])
        updates = float(spec["rl"]["optimizer_steps"] * self.cost["optimizer_step_s"])
        return seconds + updates + self.play_seconds(spec["rollout"]["episodes"])

    def stage_seconds(self, stage: str, spec: Mapping[str, Any]) -> float:
        """Seconds of a job of any other stage, start-up included."""
        start = float(self.cost["start_s"])
        match stage:
            case "gate":
                return start + self.play_seconds(4 * spec["gate"]["episodes"])
            case "harvest":
                return start + self.play_seconds(spec["harvest"]["episodes"])
            case "evals":
                evals = spec["evals"]
                measured = len(spec["steps"])
                played = math.ceil(measured / int(evals.get("every", 1)))
                return (
                    start
                    + measured * float(self.cost["measure_s"])
                    + played * self.play_seconds(int(evals["episodes"]))
                )
            case "convert":
                return start + (self.checkpoint_bytes() + self.stage_bytes(stage)) / self._write_speed()
            case _:
                return float(self.cost["cpu_job_s"])

    def stage_bytes(self, stage: str) -> int:
        """Bytes that a job of any other stage leaves behind, as far as they count: a converted model has 2 a
        parameter."""
        return 2 * self.parameters if stage == "convert" else 0

    def _write_speed(self) -> float:
        return float(self.cost["write_gb_per_s"]) * 1e9

    def nodes(self, stage: str) -> float:
        """Nodes that a job of `stage` holds; an arm's own geometry goes before this."""
        if stage == "segment":
            return float(self.cost["nodes"])
        if stage in ("gate", "harvest", "evals"):
            return float(self.cost["play_nodes"] or self.cost["nodes"])
        return float(self.cost["cpu_nodes"])


def qwen3_parameters(config: Mapping[str, Any]) -> int:
    """Parameters of a dense Qwen3-type model, from its Hugging Face `config.json`."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, kv_heads, head = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    attention = hidden * head * (2 * heads + 2 * kv_heads) + 2 * head  # q, o, k, v and the norms of q and k
    feed_forward = 3 * hidden * config["intermediate_size"]
    embeddings = config["vocab_size"] * hidden * (1 if config["tie_word_embeddings"] else 2)
    return int(embeddings + layers * (attention + feed_forward + 2 * hidden) + hidden)
