"""After the boundary the optimizer steps like a new one; kept moments are found by what they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from internalize.errors import GateFailed
from internalize.numerics.engines import fixed_prompts
from internalize.numerics.moments import moments_gate
from internalize.numerics.verdict import Verdict, require
from internalize.train.logprobs import policy_sequence
from internalize.train.trainer import LossSpec, Trainer

BATCHES = [[policy_sequence(tokens) for tokens in fixed_prompts(40, lengths)] for lengths in ([9, 12], [15], [7, 20])]


def gate(make_trainer: Callable[[], Trainer], boundary: Callable[[Trainer], Trainer], lr: float = 1e-3) -> Verdict:
    trainer, fresh = make_trainer(), make_trainer()
    loss = LossSpec(clip_low=0.99, clip_high=1e9)
    return moments_gate(
        trainer, fresh, lambda: boundary(trainer), BATCHES[:2], BATCHES[2], loss=loss, lr=lr, tolerance=1e-6
    )


def reset(trainer: Trainer) -> Trainer:
    trainer.reset_optimizer()
    return trainer


def test_a_reset_passes_exactly(make_trainer: Callable[[], Trainer]) -> None:
    verdict = gate(make_trainer, reset)
    assert verdict.passed
    assert verdict.cases[0].error == 0.0


def test_a_reset_after_a_reload_passes_exactly(make_trainer: Callable[[], Trainer], tmp_path: Path) -> None:
    def reload(trainer: Trainer) -> Trainer:
        trainer.save(tmp_path / "at")
        other = make_trainer()
        other.load(tmp_path / "at")
        return reset(other)

    assert gate(make_trainer, reload).cases[0].error == 0.0


def test_kept_moments_are_found_and_a_weight_is_named(make_trainer: Callable[[], Trainer]) -> None:
    with pytest.raises(GateFailed) as failure:
        require([gate(make_trainer, lambda trainer: trainer)])
    said = str(failure.value)
    assert "optimizer moments of " in said
    assert ".weight, [" in said
    assert "differs from that of a new optimizer" in said


def test_moments_that_come_back_with_the_checkpoint_are_found(
    make_trainer: Callable[[], Trainer], tmp_path: Path
) -> None:
    """The reset came before the save that was loaded again."""

    def late(trainer: Trainer) -> Trainer:
        trainer.save(tmp_path / "at")
        reset(trainer)
        trainer.load(tmp_path / "at")
        return trainer

    assert not gate(make_trainer, late).passed


def test_a_step_that_moves_nothing_proves_nothing(make_trainer: Callable[[], Trainer]) -> None:
    verdict = gate(make_trainer, reset, lr=0.0)
    assert not verdict.passed
    assert "moved nothing" in verdict.cases[0].note
