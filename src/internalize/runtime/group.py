"""The driver's side of a trainer that is spread over ranks: the methods of `Trainer`, each asked of every rank.

Invariant: either every rank has done what was asked, or an error says why not and the group is of no further use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from internalize.runtime.rank import TrainerSettings
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.trainer import StepStats


class Ranks(Protocol):
    """Processes that each hold a `Rank`, however they are started and reached."""

    def call(self, name: str, *arguments: Any) -> list[tuple[Any, float]]:
        """`Rank.call` on every rank; their answers in rank order.

        Raises:
            WorkerLost: a rank died.
            UserError: the ranks refused.
        """
        ...

    def close(self) -> None:
        """Ends the processes, whatever state they are in."""
        ...


class TrainerGroup:
    """A trainer behind `Ranks`; close it."""

    def __init__(self, ranks: Ranks, settings: TrainerSettings) -> None:
        self._ranks = ranks
        self.steps = 0
        """Optimizer steps since the weights were loaded."""
        self._cpu_seconds = 0.0
        try:
            self._ask("build", settings)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the ranks; idempotent."""
        self._ranks.close()

    def cpu_seconds(self) -> float:
        """CPU seconds that the ranks have spent since this was last asked."""
        spent, self._cpu_seconds = self._cpu_seconds, 0.0
        return spent

    def load_folder(self, folder: Path) -> None:
        """Takes the weights of a model folder, with fresh moments and step count."""
        self._ask("load_folder", folder.resolve())
        self.steps = 0

    def load(self, folder: Path) -> int:
        """See `Trainer.load`."""
        iteration, self.steps = self._ask("load", folder.resolve())[0]
        return int(iteration)

    def save(self, folder: Path, *, iteration: int = 0) -> None:
        """See `Trainer.save`; the folder must be one that every rank sees."""
        self._ask("save", folder.resolve(), iteration)

    def reset_optimizer(self) -> None:
        """See `Trainer.reset_optimizer`."""
        self._ask("reset_optimizer")

    def train_step(self, sequences: Sequence[TrainSequence], loss: LossSpec, lr: float | None = None) -> StepStats:
        """See `Trainer.train_step`."""
        stats, self.steps = self._ask("train_step", list(sequences), loss, lr)[0]
        result: StepStats = stats
        return result

    def logprobs(self, sequences: Sequence[Sequence[int]], temperature: float = 1.0) -> list[list[float]]:
        """See `Trainer.logprobs`."""
        said: list[list[float]] = self._ask("logprobs", sequences, temperature)[-1]  # the last rank has the last stage
        return said

    def export_hf(self) -> dict[str, Tensor]:
        """The whole model; for models that fit into this process."""
        state: dict[str, Tensor] = self._ask("export_hf")[0]
        return state

    def publish(self, folder: Path, dtype: str = "float32") -> dict[str, dict[str, str]]:
        """Every rank's part of the weights, written into `folder`: file -> tensor -> hash."""
        written: dict[str, dict[str, str]] = {}
        for files in self._ask("publish", folder.resolve(), dtype):
            written |= files
        return written

    def offload(self) -> None:
        """See `Trainer.offload`."""
        self._ask("offload")

    def onload(self) -> None:
        """See `Trainer.onload`."""
        self._ask("onload")

    def _ask(self, name: str, *arguments: Any) -> list[Any]:
        answers = self._ranks.call(name, *arguments)
        self._cpu_seconds += sum(seconds for _, seconds in answers)
        return [result for result, _ in answers]
