"""What a segment and each of its steps are determined by.

Invariant: the spec of a step holds every setting that its result depends on and nothing else; it does not depend on how
many steps the arm has, nor on which steps share a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepSettings:
    """One step of an arm."""

    spec: dict[str, Any]
    """Canonical settings; part of the store key."""

    @property
    def step(self) -> int:
        """Its number, from 0."""
        return int(self.spec["step"])

    @property
    def phase(self) -> str:
        """What it trains on: sft, rl or joint."""
        return str(self.spec["phase"])

    @property
    def reset(self) -> bool:
        """True: the Adam moments are cleared before this step trains."""
        return bool(self.spec["reset"])

    @property
    def cite_weight(self) -> float:
        """Factor on inserted knowledge tokens."""
        return float(self.spec.get("cite_weight", 1.0))

    @property
    def rollout(self) -> int | None:
        """Which of the arm's RL rollouts the step plays, from 0; None when it plays none."""
        index: int | None = self.spec.get("rollout_index")
        return index

    @property
    def plays(self) -> bool:
        """True when the step plays a rollout."""
        return self.rollout is not None

    @property
    def reads_rows(self) -> bool:
        """True when the step trains on SFT rows."""
        return self.phase in ("sft", "joint")


def step_settings(segment: dict[str, Any], step: int) -> StepSettings:
    """The settings of `step`, cut out of its segment's spec."""
    at = step - segment["first"]
    phase = segment["phases"][at]
    spec: dict[str, Any] = {
        "step": step,
        "phase": phase,
        "reset": segment["resets"][at],
        "seed": segment["seed"],
        "game": segment["game"],
        "rollout": segment["rollout"],
        "guard": segment["guard"],
    }
    if phase != "rl":
        cite = float(segment["cite_weights"][at])
        spec |= {"sft": segment["sft"], "rows": segment["rows"], "cite_weight": cite}
    rollout: int | None = segment["rollouts"][at]
    if rollout is not None:
        spec |= {"rl": segment["rl"], "rollout_index": rollout}
    if phase == "joint":
        spec["fraction"] = segment["fraction"]
    if segment.get("parallel", {}).get("decides"):
        spec["parallel"] = segment["parallel"]["decides"]
    return StepSettings(spec)
