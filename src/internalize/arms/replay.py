"""A step trained again from its dump, and held against what was committed.

Invariant: a replay reads the exact batches of `rollout/<step>.pt` and the checkpoint of the step before, plays nothing
and draws nothing; on one CPU and one build of torch it gives the committed files bit for bit. Elsewhere (another
device, another parallel shape) sums are taken in another order: then the tensors are compared within a stated
tolerance, relative to the largest entry of each.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize.arms.chain import Chain
from internalize.arms.updates import summary, take_steps
from internalize.checkpoints import layout
from internalize.checkpoints.torch_dist import TorchDist
from internalize.engine.folder import ModelFolder
from internalize.files import read_json, read_jsonl, sha256_file
from internalize.receipts import Receipt
from internalize.rollout.dump import load_dump
from internalize.runtime.runtimes import trainer_settings
from internalize.study_parallel import Parallel

ONE_RANK = ("micro_batch_tokens", "precision")
"""Settings of `parallel` that one rank's bits depend on, too; a replay has one rank, whatever the run had."""


@dataclass(frozen=True)
class Outcome:
    """A replayed step.

    Attributes:
        equal: bit for bit: weights, moments and numbers.
        within: equal, or within the tolerance.
        largest: greatest difference of a tensor relative to its largest entry; None where all bytes agree, or where
            the guard left no checkpoint.
        what: what differs: numbers, or the tensor that differs most.
    """

    step: int
    phase: str
    equal: bool
    within: bool
    largest: float | None
    what: str


class Replay:
    """Trains steps of a run again. Use as a context manager: it holds a trainer.

    Args:
        chain: the run.
        first: the step to begin with.
    """

    def __init__(self, chain: Chain, first: int) -> None:
        self.chain = chain
        self._base = chain.base(first).payload
        self._at: int | None = None
        spec = chain.receipt(first).spec
        kept = {key: spec["parallel"][key] for key in ONE_RANK if key in spec.get("parallel", {})}
        settings = trainer_settings(Parallel(**kept), read_json(self._base / "config.json"), int(spec["seed"]))
        self.trainer = settings.trainer()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *exc: object) -> None:
        self.trainer.close()

    def train(self, step: int, afresh: bool = False) -> dict[str, Any]:
        """Trains a step on its dump; returns its numbers as `metrics.jsonl` has them.

        Args:
            afresh: start from the committed checkpoint even if the trainer stands at the step before.

        Raises:
            MissingPayload: the checkpoint to start from was pruned; the error says how it comes back.
        """
        settings = self.chain.settings(step)
        dump = load_dump(self.chain.store.open(self.chain.receipt(step)).payload / "rollout" / f"{step}.pt")
        if afresh or self._at != step - 1:
            self._load(step)
        self._at = None
        if settings.reset:
            self.trainer.reset_optimizer()
        stats, broken = take_steps(self.trainer, dump.batches, settings)
        self._at = step
        return summary(stats, broken)

    def compare(self, step: int, tolerance: float = 0.0) -> Outcome:
        """Trains a step from the committed one before it, and compares it with the committed one.

        Args:
            tolerance: of tensors relative to their largest entry, and of numbers relative to themselves.
        """
        numbers = self.train(step, afresh=True)
        receipt = self.chain.receipt(step)
        entry = self.chain.store.root / receipt.entry
        row = _committed(entry)
        differs = numbers_that_differ(numbers, row, tolerance)
        largest, what, same = None, "", True
        if receipt.status != "stopped":
            with tempfile.TemporaryDirectory(dir=self.chain.store.root, prefix=".replay-") as scratch:
                made = layout.iteration_folder(Path(scratch), step)
                self.trainer.save(made, iteration=step)
                same = not files_that_differ(receipt, made)
                if not same:
                    largest, what = largest_difference(made, layout.iteration_folder(entry, step))
        return Outcome(
            step,
            self.chain.settings(step).phase,
            equal=same and not numbers_that_differ(numbers, row, 0.0),
            within=not differs and (same or (largest is not None and largest <= tolerance)),
            largest=largest,
            what="; ".join([*differs, *([what] if what else [])]),
        )

    def _load(self, step: int) -> None:
        before = self.chain.before(step)
        if before is None:
            self.trainer.load_hf(ModelFolder(self._base).state())
        else:
            self.trainer.load(layout.iteration_folder(before.payload, step - 1))


def files_that_differ(receipt: Receipt, folder: Path) -> list[str]:
    """Files of a fresh ``iter_*`` folder whose hash is not the receipt's, and those that only one side has."""
    inside = [file for file in receipt.files if file.path.startswith(f"{folder.name}/")]
    wanted = {file.path.partition("/")[2]: file.sha256 for file in inside}
    have = {path.name: sha256_file(path) for path in folder.iterdir()}
    return sorted(name for name in {*wanted, *have} if wanted.get(name) != have.get(name))


def largest_difference(made: Path, committed: Path) -> tuple[float, str]:
    """Over all tensors (weights and moments): the greatest difference relative to the tensor's largest entry.

    Returns:
        It, and the tensor's name; infinite where a tensor is missing, has another shape or is not finite.
    """
    worst, name = 0.0, "an object that is no tensor"
    with TorchDist(made) as a, TorchDist(committed) as b:
        odd = sorted(set(a.tensors().items()) ^ set(b.tensors().items()))
        if odd:
            return math.inf, odd[0][0]
        for tensor, shape in a.tensors().items():
            for layer in range(shape[0]) if len(shape) == 3 else (None,):
                relative = _relative(a.read(tensor, layer), b.read(tensor, layer))
                if relative > worst:
                    worst, name = relative, tensor
    return worst, name


def _relative(made: Any, committed: Any) -> float:
    x, y = made.double(), committed.double()
    if not y.numel():
        return 0.0
    difference, scale = float((x - y).abs().max()), float(y.abs().max())
    if not math.isfinite(difference):
        return math.inf
    return difference / scale if scale else (math.inf if difference else 0.0)


def _committed(entry: Path) -> Mapping[str, Any]:
    return next((row for row in read_jsonl(entry / "metrics.jsonl") if row["kind"] == "train"), {})


def numbers_that_differ(numbers: Mapping[str, Any], row: Mapping[str, Any], tolerance: float) -> list[str]:
    """Numbers of a step that differ from the committed ones by more than `tolerance` of themselves."""
    differs = []
    for name, value in numbers.items():
        other = row.get(name)
        if value == other:
            continue
        if isinstance(value, float) and isinstance(other, float) and math.isclose(value, other, rel_tol=tolerance):
            continue
        differs.append(f"{name} {value!r}, committed {other!r}")
    return differs
