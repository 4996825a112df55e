"""The loss and the learning rate of a step's updates, from its settings.

Invariant: a step that is trained and the same step replayed ask this one function.
"""

from __future__ import annotations

from internalize.arms.settings import StepSettings
from internalize.train.losses import LossSpec


def update_of(settings: StepSettings) -> tuple[LossSpec, float]:
    """Loss and learning rate; log-probs are taken at the sampling temperature."""
    spec = settings.spec
    temperature = float(spec["rollout"]["temperature"])
    if not settings.plays:
        return LossSpec(temperature=temperature), float(spec["sft"]["lr"])
    rl = spec["rl"]
    normaliser = rl["normaliser"]
    loss = LossSpec(
        temperature=temperature,
        clip_low=float(rl["clip_low"]),
        clip_high=float(rl["clip_high"]),
        normaliser=normaliser["type"],
        tokens_per_episode=float(normaliser.get("tokens_per_episode", 1.0)),
    )
    return loss, float(rl["lr"])
