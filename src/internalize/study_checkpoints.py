"""Study keys about checkpoints: which become model folders, which are kept.

Invariant: both are off by default, and neither is part of any step's spec: they change what is made of a checkpoint
and how long it lies there, never what is trained.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from internalize.study_model import Count, Settings

Step = Annotated[int, Field(ge=0)]


class Convert(Settings):
    """Checkpoints that become Hugging Face model folders."""

    steps: Literal["last", "all", "warmup"] | Annotated[list[Step], Field(min_length=1)] = "last"
    """Of each arm and seed: its last step, every step, the SFT steps before its first RL step, or these steps."""
    dtype: Literal["bfloat16", "float16", "float32", "keep"] = "bfloat16"
    """Type of the numbers; `keep` leaves them as they were trained."""
    shard_gb: Annotated[float, Field(gt=0)] = 5.0
    """Greatest size of a weight file, in GB (10^9 bytes)."""

    def spec(self) -> dict[str, Any]:
        """What one conversion depends on."""
        return {"dtype": self.dtype, "shard_bytes": int(self.shard_gb * 1e9)}

    def chosen(self, steps: Sequence[int], phases: Sequence[str]) -> list[int]:
        """The steps to convert of an arm.

        Args:
            steps: its own steps that have a checkpoint, ascending.
            phases: of every step from 0 on.
        """
        match self.steps:
            case "all":
                return list(steps)
            case "last":
                return list(steps[-1:])
            case "warmup":
                return list(itertools.takewhile(lambda step: phases[step] == "sft", steps))
            case named:
                return [step for step in steps if step in named]


class Retention(Settings):
    """Checkpoints that `internalize prune` keeps; the receipts, metrics, episodes and batches of all steps stay.

    A checkpoint goes only when a later one of its arm and seed is complete and verified, and when nothing that the
    study asks for still has to read it.
    """

    keep_last: Count = 2
    """The last ones of each arm and seed."""
    keep_every: Step = 0
    """Every step whose number is a multiple of this; 0 keeps none for that."""
    keep_published: bool = True
    """Those that `convert` turns into model folders."""

    def kept(self, step: int, steps: Sequence[int], published: Sequence[int]) -> str:
        """Why a step of `steps` (those with a checkpoint, ascending) is kept; empty when it is not."""
        if step in steps[-self.keep_last :]:
            return f"one of the last {self.keep_last}"
        if self.keep_every and step % self.keep_every == 0:
            return f"every {self.keep_every}"
        return "published" if self.keep_published and step in published else ""
