"""What the store already holds of a plan.

Invariant: a job or step counts as done exactly when the store has a complete entry under the key that the job would
compute, whatever receipts lie in `results`; so what is left is what would really be computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from internalize.arms.recorded import find_recorded, label_of
from internalize.arms.segment import STAGE as STEP
from internalize.arms.segment import step_parents
from internalize.arms.settings import StepSettings, step_settings
from internalize.costs.jobs import Job
from internalize.errors import UserError
from internalize.inputs import input_name
from internalize.receipts import Receipt
from internalize.stages import STAGES, parent_hashes
from internalize.store import Store
from internalize.workflow import Plan

BY_RECEIPT = frozenset({"report", "graphs", "numerics", "convert", "archive", "page"})
"""Rules that are not looked up in the store: done when their receipt is there and what they read is done."""
Step = tuple[str, int, int]
"""Arm, seed, step."""


@dataclass
class Found:
    """Receipts of what is done: by the path of the receipt, and by arm, seed and step."""

    jobs: dict[str, Receipt] = field(default_factory=dict)
    steps: dict[Step, Receipt] = field(default_factory=dict)
    keys: dict[Step, str] = field(default_factory=dict)
    """Store keys of the steps whose predecessors are done: those of done steps, and of the next one of each run."""


def find_done(jobs: Iterable[Job], plan: Plan, store: Store) -> Found:
    """Looks every job of the plan up, in order; damaged entries count as not done."""
    found = Found()
    for job in jobs:
        read = {path: found.jobs.get(path) for path in job.inputs}
        if job.stage == "segment":
            _find_steps(job, read, plan, store, found)
        elif job.stage in STAGES and job.rule not in BY_RECEIPT:
            known = _known(job, read, found)
            if known is not None:
                key = store.key(job.stage, job.spec, plan.code(job.stage), parent_hashes(known))
                receipt = _look(store, job.stage, key)
                if receipt is not None:
                    found.jobs[job.output] = receipt
    return found


def _find_steps(job: Job, read: dict[str, Receipt | None], plan: Plan, store: Store, found: Found) -> None:
    arm, seed = str(job.arm), int(job.seed or 0)
    first, last = int(job.spec["first"]), int(job.spec["last"])
    previous = next((receipt for path, receipt in read.items() if input_name(path) == "step"), None)
    receipts = {name: receipt for path, receipt in read.items() if (name := input_name(path)) and receipt is not None}
    for step in range(first, last + 1):
        settings = step_settings(job.spec, step)
        recorded = _look_recorded(store, label_of(arm, seed), settings)
        if recorded is not None:
            previous = found.steps[arm, seed, step] = recorded
            continue
        if (step > 0 and previous is None) or not _ready(settings, receipts):
            return
        parents = parent_hashes(step_parents(settings, receipts, previous))
        key = store.key(STEP, settings.spec, plan.code("segment"), parents)
        found.keys[arm, seed, step] = key
        previous = _look(store, STEP, key)
        if previous is None:
            return
        found.steps[arm, seed, step] = previous
    if previous is not None:
        found.jobs[job.output] = previous


def _ready(settings: StepSettings, receipts: dict[str, Receipt]) -> bool:
    needed = {"base", "knowledge", "gate"}
    if settings.reads_rows:
        needed |= {f"rows.{name}" for name in settings.spec["rows"]}
    return needed <= set(receipts)


def _known(job: Job, read: dict[str, Receipt | None], found: Found) -> dict[str, Receipt] | None:
    """The job's inputs by the names that its rule gives them; None when one is not known yet."""
    known: dict[str, Receipt] = {}
    for path, receipt in read.items():
        if receipt is None:
            return None
        name = input_name(path)
        if job.stage == "rows" and name.startswith("rows."):
            name = "of"  # the rules give these names (rules/*.smk)
        if job.stage == "rows" and name.startswith("harvest."):
            name = "harvest"
        if not name.startswith("step"):
            known[name] = receipt
    if job.stage == "evals" and job.arm is not None:
        for step in job.spec["steps"]:
            receipt = found.steps.get((job.arm, int(job.seed or 0), step))
            if receipt is None:
                return None
            known[f"step{step:04d}"] = receipt
    return known


def _look_recorded(store: Store, label: str, settings: StepSettings) -> Receipt | None:
    try:
        return find_recorded(store, label, settings)
    except UserError:
        return None


def _look(store: Store, stage: str, key: str) -> Receipt | None:
    try:
        return store.find(stage, key)
    except UserError:
        return None
