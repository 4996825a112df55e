"""Four ranks that train the same batches at several parallel shapes; the tests read what they leave.

`python parallel_ranks.py FOLDER` imports everything and forks the ranks. These split into worlds of 2 and 4 one after
another, so that one start (some seconds of imports) serves every rank and every shape.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from training_examples import CONFIG, ce_sequence, kl_sequence, pg_sequence, random_weights

from internalize.errors import UserError
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.trainer import OptimizerSpec, ParallelSpec, Trainer

STEPS, SAVED_AFTER, LR = 4, 2, 1e-3
UNTIED = CONFIG | {"tie_word_embeddings": False}


@dataclass(frozen=True)
class Shape:
    """A world of `tp * pp * dp` ranks, from rank `first` of the four on."""

    name: str
    first: int = 0
    tp: int = 1
    pp: int = 1
    dp: int = 1
    recompute: bool = False
    half: bool = False
    """Trains in bf16, too."""

    @property
    def ranks(self) -> range:
        return range(self.first, self.first + self.tp * self.pp * self.dp)

    @property
    def spec(self) -> ParallelSpec:
        return ParallelSpec(tp=self.tp, pp=self.pp, recompute=self.recompute)


ROUNDS = [
    [Shape("tp2", tp=2, half=True), Shape("pp2", first=2, pp=2, half=True)],
    [Shape("dp2", dp=2), Shape("tp2-recompute", first=2, tp=2, recompute=True)],
    [Shape("tp2-pp2", tp=2, pp=2)],
    [Shape("pp2-dp2", pp=2, dp=2)],
]
SHAPES = {shape.name: shape for line in ROUNDS for shape in line}


def batch(kind: str, step: int) -> list[TrainSequence]:
    """Sequences of uneven lengths, some without anything to train."""
    rng = np.random.default_rng([7, step])
    ce = [ce_sequence(rng, n) for n in (23, 7, 41, 2, 16, 30)]
    pg = [pg_sequence(rng, n, a, f"{n}") for n, a in ((17, 0.8), (30, -0.8), (9, 0.0), (12, 0.4), (25, -0.4))]
    return {"sft": ce, "drgrpo": pg, "joint": [*pg[:3], *ce[:2], kl_sequence(rng, 12), *pg[3:], *ce[2:]]}[kind]


KINDS = {
    "sft": LossSpec(),
    "drgrpo": LossSpec(temperature=0.8),
    "joint": LossSpec(temperature=1.2, normaliser="tokens"),
}


def train(kind: str, config: dict[str, Any], parallel: ParallelSpec, save: Path | None = None) -> dict[str, Any]:
    """Four steps; what they report, and the sum of every tensor of the weights afterwards."""
    with Trainer(config, OptimizerSpec(weight_decay=0.01), parallel, max_tokens=45) as trainer:
        weights = random_weights(config, 0)
        trainer.load_hf(weights)
        loaded = trainer.export_hf()
        steps = []
        for step in range(STEPS):
            if step == SAVED_AFTER and save is not None:
                trainer.save(save, iteration=SAVED_AFTER)
            steps.append(vars(trainer.train_step(batch(kind, step), KINDS[kind], lr=LR)))
        return {
            "steps": steps,
            "loaded": all(torch.equal(loaded[name], tensor.to(loaded[name])) for name, tensor in weights.items()),
            "weights": {name: tensor.double().flatten().tolist() for name, tensor in trainer.export_hf().items()},
        }


def odd_cases(parallel: ParallelSpec) -> dict[str, Any]:
    """What goes wrong or is empty on one rank only."""
    found: dict[str, Any] = {}
    with Trainer(CONFIG, OptimizerSpec(), parallel) as trainer:
        weights = random_weights(CONFIG, 0)
        trainer.load_hf(weights)
        rng = np.random.default_rng(3)
        found["one sequence"] = vars(trainer.train_step([ce_sequence(rng, 12)], LossSpec(), lr=LR))
        found["skipped"] = trainer.train_step([pg_sequence(rng, 9, 0.0, "a")], LossSpec(), lr=LR).skipped
        weights["model.layers.1.mlp.down_proj.weight"][3, 4] = float("nan")  # on one pipeline stage and half a pair
        trainer.load_hf(weights)
        try:
            trainer.train_step(batch("sft", 0), LossSpec(), lr=LR)
        except UserError as error:
            found["broken"] = str(error)
        trainer.load_hf(random_weights(CONFIG, 0))
        trainer.offload()
        trainer.onload()
        found["after"] = vars(trainer.train_step(batch("sft", 0), LossSpec(), lr=LR))
    return found


def resume(folder: Path, parallel: ParallelSpec) -> list[dict[str, Any]]:
    """The steps after the save, from a checkpoint of any shape."""
    with Trainer(CONFIG, OptimizerSpec(weight_decay=0.01), parallel, seed=5, max_tokens=45) as trainer:
        assert trainer.load(folder) == SAVED_AFTER
        return [
            vars(trainer.train_step(batch("joint", step), KINDS["joint"], lr=LR)) for step in range(SAVED_AFTER, STEPS)
        ]


def cases(shape: Shape, folder: Path) -> dict[str, Any]:
    """Everything that one shape is asked."""
    found: dict[str, Any] = {
        kind: train(kind, CONFIG, shape.spec, folder / f"{shape.name}-{kind}" if kind == "joint" else None)
        for kind in KINDS
    }
    if shape.pp > 1:
        found["untied"] = train("sft", UNTIED, shape.spec)
    if shape.half:
        found["half"] = train("sft", CONFIG, replace(shape.spec, precision="bf16"))
    found["odd"] = odd_cases(shape.spec)
    if shape.name == "tp2-pp2":
        found["from one rank"] = resume(folder / "one-joint", shape.spec)
        found["from dp2"] = resume(folder / "dp2-joint", shape.spec)
    return found


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    for number, line in enumerate(ROUNDS):
        for shape in line:
            if rank not in shape.ranks:
                continue
            store = dist.FileStore(str(folder / f"store{number}-{shape.first}"), len(shape.ranks))
            dist.init_process_group(
                "gloo",
                store=store,
                rank=rank - shape.first,
                world_size=len(shape.ranks),
                timeout=timedelta(seconds=60),
            )
            found = cases(shape, folder)
            (folder / f"{shape.name}.{rank - shape.first}.json").write_text(json.dumps(found))
            dist.destroy_process_group()


def fork(rank: int, folder: Path) -> int:
    """A process that is this rank; its id."""
    child = os.fork()
    if child:
        return child
    try:
        main(rank, folder)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    children = [fork(rank, Path(sys.argv[1])) for rank in range(4)]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
