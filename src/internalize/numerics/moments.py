"""Gate `moments`: after the change from SFT to RL the optimizer steps like a new one.

Invariant: what is compared is what the optimizer does (the change of every weight in the next step), beside a trainer
that never held any moments; so it does not matter where an optimizer keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from internalize.numerics.verdict import Case, Verdict, relative_error
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec


class Stepping(Protocol):
    """What this gate needs of a trainer."""

    model: torch.nn.Module

    def export_hf(self) -> dict[str, Tensor]:
        """Its weights."""
        ...

    def load_hf(self, state: Mapping[str, Tensor]) -> None:
        """Takes weights, starts with fresh moments."""
        ...

    def train_step(self, sequences: Sequence[TrainSequence], loss: LossSpec, lr: float | None = None) -> object:
        """One optimizer step."""
        ...


def moments_gate(
    trainer: Stepping,
    fresh: Stepping,
    boundary: Callable[[], Stepping],
    warm_up: Sequence[Sequence[TrainSequence]],
    batch: Sequence[TrainSequence],
    *,
    loss: LossSpec,
    lr: float,
    tolerance: float,
) -> Verdict:
    """Trains `trainer` on the batches of `warm_up`, crosses the boundary, and takes one more step beside `fresh`.

    Args:
        trainer: any weights.
        fresh: another trainer of the same model; it is given the weights of the boundary.
        boundary: what the study does there; returns the trainer that goes on (another one after a reload).
    """
    for part in warm_up:
        trainer.train_step(part, loss, lr)
    after = boundary()
    fresh.load_hf(after.export_hf())
    before = _weights(fresh)
    for one in (after, fresh):
        one.train_step(batch, loss, lr)
    got, want = _weights(after), _weights(fresh)
    errors = {name: relative_error(got[name] - before[name], want[name] - before[name]) for name in want}
    worst = max(errors, key=lambda name: errors[name])
    moved = sum(1 for name in want if not torch.equal(want[name], before[name]))
    note = "the first step after the boundary differs from that of a new optimizer"
    if not moved:
        return Verdict("moments", (Case("optimizer", "no weight", float("inf"), tolerance, "the step moved nothing"),))
    passed = errors[worst] <= tolerance
    case = Case(
        f"optimizer moments of {worst}",
        str(list(want[worst].shape)),
        errors[worst],
        tolerance,
        f"{moved} weights compared, this one is worst" if passed else note,
    )
    return Verdict("moments", (case,))


def _weights(trainer: Stepping) -> dict[str, Tensor]:
    """This rank's weights, copied."""
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
