"""A pruned checkpoint comes back.

Invariant: what comes back has the hashes of the receipt, or nothing changes; the tombstone goes last, so a killed run
leaves the checkpoint as pruned as it was.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from internalize.arms.chain import Chain
from internalize.arms.replay import Replay, files_that_differ
from internalize.checkpoints import layout
from internalize.checkpoints.tombstone import read_tombstone
from internalize.errors import CorruptPayload, UserError
from internalize.files import fsync_dir
from internalize.store import PRUNED


def is_pruned(chain: Chain, step: int) -> bool:
    """Does a tombstone stand in place of a step's checkpoint?"""
    return read_tombstone(_folder(chain, step)) is not None


def rematerialise(chain: Chain, step: int, progress: Callable[[str], None]) -> None:
    """Trains a pruned step again, from the nearest checkpoint before it on, on the recorded batches.

    Raises:
        UserError: it was not pruned.
        CorruptPayload: what comes out is not what the receipt says (another device or build of torch).
    """
    receipt, folder = chain.receipt(step), _folder(chain, step)
    if not is_pruned(chain, step):
        raise UserError(f"the checkpoint of step {step} was not pruned", where=str(folder))
    first = step
    while first - 1 in chain.receipts and is_pruned(chain, first - 1):
        first -= 1
    with (
        Replay(chain, first) as replay,
        tempfile.TemporaryDirectory(dir=chain.store.root, prefix=".rematerialise-") as scratch,
    ):
        for number in range(first, step + 1):
            replay.train(number)
            progress(f"step {number} of {step} trained again")
        made = layout.iteration_folder(Path(scratch), step)
        replay.trainer.save(made, iteration=step)
        differ = files_that_differ(receipt, made)
        if differ:
            raise CorruptPayload(
                f"step {step} trained again is not the step that was committed",
                where=str(folder),
                expected="the hashes of its receipt",
                got=", ".join(differ),
                fix="use the device, the parallel shape and the versions that run.json names, or let the study compute "
                f"the step anew: internalize forget step {folder.parent.name}, then run the study again",
            )
        with chain.store.lease("step", receipt.key):
            for path in sorted(made.iterdir()):
                os.replace(path, folder / path.name)
            fsync_dir(folder)
            (folder / PRUNED).unlink()
            fsync_dir(folder)


def _folder(chain: Chain, step: int) -> Path:
    return layout.iteration_folder(chain.store.root / chain.receipt(step).entry, step)
