"""Which checkpoints may go, and their deletion.

Invariant: a checkpoint goes only when a later one of its arm and seed was read to the last byte and found whole, when
nothing that the study asks for still has to read it, and when every arm that shares it agrees. Its tombstone is there
before its first file goes; receipt, metrics, episodes and batches stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from internalize.checkpoints import layout
from internalize.checkpoints.inventory import STAGE, Checkpoint, step_receipts, take_inventory
from internalize.checkpoints.tombstone import Tombstone, read_tombstone, write_tombstone
from internalize.errors import UserError
from internalize.files import fsync_dir
from internalize.receipts import Receipt, read_receipt
from internalize.store import PRUNED, Store
from internalize.study_checkpoints import Retention

Run = tuple[str, int]
"""Arm and seed."""


@dataclass(frozen=True)
class Decision:
    """What happens to one checkpoint.

    Attributes:
        keep: why it stays; empty when it goes.
        kept_step: the later step that makes it safe to go; -1 when it stays.
        from_step: where it can be computed from again, -1: the base.
    """

    row: Checkpoint
    keep: str
    kept_step: int = -1
    from_step: int = -1

    @property
    def command(self) -> str:
        """Brings the checkpoint back."""
        return f"internalize rematerialise {self.row.arm} --seed {self.row.seed} --step {self.row.step}"


def decide(policy: Retention, results: Path, store: Store, published: Mapping[Run, Sequence[int]]) -> list[Decision]:
    """One decision a checkpoint that is there or was pruned, in the order of arm, seed and step; deletes nothing.

    Args:
        published: steps that the study turns into model folders, by arm and seed; runs that are not in it are none of
            the study's and all their checkpoints stay.
    """
    rows, _ = take_inventory(results, store)
    receipts = step_receipts(results)
    decisions: list[Decision] = []
    for run in sorted({(row.arm, row.seed) for row in rows}):
        mine = [row for row in rows if (row.arm, row.seed) == run and row.state in ("complete", "pruned")]
        decisions += _decide_run(policy, results, store, run, mine, receipts, published.get(run))
    wanted = {d.row.entry: f"{d.row.arm} shares it ({d.keep})" for d in decisions if d.keep}
    return [d if d.keep else replace(d, keep=wanted.get(d.row.entry, "")) for d in decisions]


def _decide_run(
    policy: Retention,
    results: Path,
    store: Store,
    run: Run,
    rows: Sequence[Checkpoint],
    receipts: Mapping[tuple[str, int, int], Receipt],
    published: Sequence[int] | None,
) -> list[Decision]:
    steps = [row.step for row in rows]
    keep: dict[int, str] = {}
    for row in rows:
        receipt = receipts[(*run, row.step)]
        reason = "the study does not have this arm and seed" if published is None else ""
        reason = reason or policy.kept(row.step, steps, published or ())
        keep[row.step] = reason or _still_needed(results, run, row.step, receipt, published or ())
    there = {row.step for row in rows if row.state == "complete"}
    decisions = []
    for row in rows:
        later = [step for step in steps if step > row.step and keep[step] and step in there]
        earlier = [step for step in steps if step < row.step and keep[step] and step in there]
        reason = keep[row.step]
        if not reason and not later:
            reason = "no later checkpoint is complete"
        from_step = max(earlier, default=-1)
        if row.state == "pruned" and not row.files:
            stone = read_tombstone(layout.iteration_folder(store.root / row.entry, row.step))
            if reason or (stone is not None and stone.from_step == from_step):
                reason = "pruned already"
        decisions.append(Decision(row, reason) if reason else Decision(row, "", min(later), from_step))
    return decisions


def _still_needed(results: Path, run: Run, step: int, receipt: Receipt, published: Sequence[int]) -> str:
    """A job of the study that has not read the checkpoint yet."""
    arm, seed = run
    if _parent(results / f"receipts/evals/{arm}/seed{seed}.json", f"step{step:04d}") != receipt.hash():
        return "the evals have not measured it yet"
    path = results / f"receipts/convert/{arm}/seed{seed}/step{step:04d}.json"
    if step in published and _parent(path, "step") != receipt.hash():
        return "it is not converted yet"
    return ""


def _parent(path: Path, name: str) -> str | None:
    return read_receipt(path).parents.get(name) if path.exists() else None


def prune(
    decisions: Sequence[Decision], store: Store, receipts: Mapping[tuple[str, int, int], Receipt]
) -> list[Decision]:
    """Deletes what the decisions let go, each under the entry's lease; returns the decisions as carried out.

    A checkpoint whose replacement turns out to be damaged stays, and its decision says so.
    """
    verified: dict[tuple[str, int, int], str] = {}
    done = []
    for decision in decisions:
        row = decision.row
        if decision.keep:
            done.append(decision)
            continue
        place = (row.arm, row.seed, decision.kept_step)
        if place not in verified:
            verified[place] = _trouble(store, receipts[place])
        if verified[place]:
            done.append(replace(decision, keep=f"step {decision.kept_step} is no replacement: {verified[place]}"))
            continue
        receipt = receipts[row.arm, row.seed, row.step]
        with store.lease(STAGE, receipt.key):
            _delete(layout.iteration_folder(store.root / receipt.entry, row.step), decision, receipt)
        done.append(decision)
    return done


def _trouble(store: Store, receipt: Receipt) -> str:
    try:
        store.open(receipt)
    except UserError as error:
        return f"{error.what} ({Path(error.where).name})"
    return ""


def _delete(folder: Path, decision: Decision, receipt: Receipt) -> None:
    inside = [file for file in receipt.files if file.path.startswith(f"{folder.name}/")]
    names = [file.path.partition("/")[2] for file in inside]
    size = sum(file.bytes for file in inside)
    row = decision.row
    stone = Tombstone(
        step=row.step,
        files=names,
        bytes=size,
        kept_step=decision.kept_step,
        from_step=decision.from_step,
        command=decision.command,
    )
    write_tombstone(folder, stone)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / PRUNED:
            path.unlink()
    fsync_dir(folder)
