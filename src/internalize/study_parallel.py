"""How the ranks of a training step are laid out over GPUs and processes.

Invariant: the defaults are one rank in the stage's own process and stand in no spec, so a study that says nothing keeps
the store keys it has.
"""

from __future__ import annotations

from typing import Literal

from internalize.study_model import Count, Settings


class Parallel(Settings):
    """Layout of a training step; tensor x pipeline x data ranks."""

    tensor: Count = 1
    """Ranks that share each matrix."""
    pipeline: Count = 1
    """Stages that the layers are cut into."""
    data: Count = 1
    """Copies that share the batch."""
    recompute: Literal["none", "full"] = "none"
    """Activations: kept, or computed again in the backward pass."""
    sequence_parallel: bool = False
    """True: norms and dropouts are split over the tensor ranks as well."""
    distributed_optimizer: bool = False
    """True: optimizer state is split over the data ranks."""
    runtime: Literal["inline", "torchrun", "ray"] = "inline"
    """What starts the ranks."""
    engines: Count | None = None
    """Engines that play; null: one in the stage's own process."""

    @property
    def ranks(self) -> int:
        """Processes that train."""
        return self.tensor * self.pipeline * self.data
