"""Trainer and engine agree on sampled tokens; a temperature that one of them forgets is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Engine
from internalize.errors import GateFailed
from internalize.numerics.engines import Subject, fixed_prompts, local_engine
from internalize.numerics.logprobs import Learner, logprobs_gate
from internalize.numerics.reference import TorchReference
from internalize.numerics.verdict import Verdict, require
from internalize.train.logprobs import policy_sequence
from internalize.train.trainer import LossSpec, Trainer

PROMPTS = fixed_prompts(40, [3, 12, 20])


class Forgetful(LocalEngine):
    """Samples at temperature 1, whatever it is asked for."""

    def generate(self, prompts: Any, sessions: Any, rngs: Any, sampling: Any) -> Any:
        return super().generate(prompts, sessions, rngs, replace(sampling, temperature=1.0))


def learner(trainer: Trainer, lr: float = 0.0) -> Learner:
    def step(sequences: Any, starts: Any, logprobs: Any, temperature: float) -> None:
        rows = zip(sequences, starts, logprobs, strict=True)
        batch = [policy_sequence(s, [*[0.0] * n, *said], sampled_from=n) for s, n, said in rows]
        trainer.train_step(batch, LossSpec(temperature=temperature), lr=lr)

    def publish(engines: Sequence[Engine]) -> None:
        for engine in engines:
            engine.update_weights(trainer.export_hf(), "now")  # type: ignore[attr-defined]

    return Learner(trainer.logprobs, step, publish)


def gate(engine: Engine, subject: Learner, **changes: Any) -> Verdict:
    options = {"temperatures": [1.0, 0.7], "new_tokens": 8, "rounds": 2, "tolerance": 1e-4, **changes}
    return logprobs_gate([Subject("tp 1", engine)], subject, PROMPTS, **options)


def test_the_trainers_logprobs_are_the_models(
    config: dict[str, Any], weights: dict[str, Tensor], make_trainer: Callable[[], Trainer]
) -> None:
    trainer = make_trainer()
    trainer.max_tokens = 16  # several micro-batches
    sequences = fixed_prompts(40, [2, 11, 14, 3])
    got = trainer.logprobs(sequences, 0.7)
    for tokens, row, table in zip(
        sequences, got, TorchReference(config, weights).logprobs(sequences, 0.7), strict=True
    ):
        assert row[0] == 0.0
        assert row[1:] == pytest.approx([float(table[t - 1, tokens[t]]) for t in range(1, len(tokens))], abs=1e-4)


def test_at_lr_0_they_agree_and_the_weights_stay(
    config: dict[str, Any], weights: dict[str, Tensor], make_trainer: Callable[[], Trainer]
) -> None:
    trainer = make_trainer()
    verdict = gate(local_engine(config, weights, 4, 64), learner(trainer))
    assert verdict.passed
    assert len(verdict.cases) == 4
    assert all(case.error < 1e-5 for case in verdict.cases)
    assert trainer.steps == 4
    assert all(torch.equal(tensor, weights[name]) for name, tensor in trainer.export_hf().items())


def test_a_forgotten_temperature_is_named(
    config: dict[str, Any], weights: dict[str, Tensor], make_trainer: Callable[[], Trainer]
) -> None:
    engine = Forgetful(config, slots=4, max_len=64)
    verdict = gate(engine, learner(make_trainer()), rounds=1)
    assert [case.passed for case in verdict.cases] == [True, False]  # at temperature 1 nothing shows
    with pytest.raises(GateFailed) as failure:
        require([verdict])
    said = str(failure.value)
    assert "head: log-probs at temperature 0.7, engine `tp 1`, " in said
    assert "sampled tokens of 3 prompts, round 1 at lr 0" in said
    assert "the engine's values are those of temperature 1, the rollout asked for 0.7" in said


def test_an_engine_left_behind_shows_in_a_later_round(
    config: dict[str, Any], weights: dict[str, Tensor], make_trainer: Callable[[], Trainer]
) -> None:
    """Weights that move although the learning rate is 0, or an update that never arrives, look like this."""
    trainer = make_trainer()
    deaf = replace(learner(trainer, lr=1e-2), publish=lambda engines: None)
    verdict = gate(local_engine(config, weights, 4, 64), deaf, temperatures=[1.0])
    assert [case.passed for case in verdict.cases] == [True, False]
    assert "round 2" in verdict.cases[1].shape
