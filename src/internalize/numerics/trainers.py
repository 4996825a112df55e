"""The trainers that arms train with, as gates see them: the runtime of a segment around the local engine.

Invariant: a shape of the study (tensor-parallel size, precision) is opened by the code that opens a segment's, its
ranks are real processes, and its weights reach the engine in the segment's own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Engine
from internalize.numerics.logprobs import Learner
from internalize.runtime.runtimes import Inline, Spread, around, trainer_settings
from internalize.study_parallel import Parallel
from internalize.train.logprobs import policy_sequence
from internalize.train.losses import LossSpec


@contextmanager
def open_trainer(
    shape: Mapping[str, Any], config: Mapping[str, Any], model: Path, work: Path, slots: int, max_len: int
) -> Iterator[Inline | Spread]:
    """A runtime whose trainer holds the weights of a model folder; its engine has none before the first `sync`.

    Args:
        shape: settings of `Parallel` that differ from their defaults; with several ranks they are started here.
        work: folder for their log and the weights that they publish.
        slots, max_len: of the engine.
    """
    one = Parallel(**shape).ranks == 1
    parallel = Parallel(**shape, runtime="inline" if one else "torchrun")
    engine = LocalEngine(config, slots=slots, max_len=max_len)
    runtime = around(engine, parallel, trainer_settings(parallel, config, 0), model, work / "ranks")
    try:
        runtime.load_base(model)
        yield runtime
    finally:
        runtime.close()


def said(shape: Mapping[str, Any]) -> str:
    """A shape in words."""
    return ", ".join(f"{key} {value}" for key, value in shape.items())


def learner(runtime: Inline | Spread) -> Learner:
    """The trainer of a runtime for the gate `logprobs`; what it publishes goes to the runtime's engine."""
    versions = count()

    def still_step(
        sequences: Sequence[Sequence[int]],
        starts: Sequence[int],
        logprobs: Sequence[Sequence[float]],
        temperature: float,
    ) -> None:
        rows = zip(sequences, starts, logprobs, strict=True)
        batch = [policy_sequence(s, [*[0.0] * start, *told], sampled_from=start) for s, start, told in rows]
        runtime.trainer.train_step(batch, LossSpec(temperature=temperature), 0.0)

    def publish(engines: Sequence[Engine]) -> None:
        runtime.sync(f"numerics{next(versions)}")

    return Learner(runtime.trainer.logprobs, still_step, publish)
