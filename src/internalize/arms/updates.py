"""The updates of a step: its loss and learning rate, its optimizer steps, the numbers they leave.

Invariant: a step that is trained and the same step replayed run this one code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from internalize.arms.settings import StepSettings
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.nonfinite import located
from internalize.train.trainer import NonFiniteError, StepStats


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


def take_steps(
    trainer: Any,
    batches: Sequence[list[TrainSequence]],
    settings: StepSettings,
    beat: Callable[[int], None] = lambda done: None,
) -> tuple[list[StepStats], NonFiniteError | None]:
    """One optimizer step a batch, up to the first number that is not finite, which is located.

    Args:
        trainer: a `Trainer`, or the group of a parallel one.
        beat: told after each step how many are done.
    """
    loss, lr = update_of(settings)
    stats: list[StepStats] = []
    for batch in batches:
        try:
            stats.append(trainer.train_step(batch, loss, lr))
        except NonFiniteError as error:
            return stats, located(trainer, batch, loss, error)
        beat(len(stats))
    return stats, None


def summary(stats: list[StepStats], broken: NonFiniteError | None) -> dict[str, Any]:
    """Training numbers of a step: means over its optimizer steps, the log-prob difference of the first (exact) one."""
    taken = [one for one in stats if not one.skipped]
    row: dict[str, Any] = {
        "optimizer_steps": len(taken),
        "skipped_steps": len(stats) - len(taken),
        "tokens": sum(one.tokens for one in taken),
    }
    for name in ("loss", "ce_loss", "pg_loss", "kl_loss", "grad_norm", "clip_fraction", "ratio_mean"):
        values = [value for one in taken if (value := getattr(one, name)) is not None]
        if values:
            row[name] = sum(values) / len(values)
    first = next((one for one in taken if one.logprob_abs_diff is not None), None)
    if first is not None:
        row["logprob_abs_diff"] = first.logprob_abs_diff
    if taken:
        row |= {"loss_first": taken[0].loss, "loss_last": taken[-1].loss}
    if broken is not None:
        row |= {"loss": None, "broken": broken.what, "broken_at": broken.where}
    return row
