"""What is to be computed again: from the user's words to store entries and receipts.

Invariant: choosing changes nothing, and a wish that names nothing of the plan is refused in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from internalize.costs.found import Found, find_done
from internalize.costs.jobs import Job, jobs_of
from internalize.errors import UserError
from internalize.inputs import RECEIPTS, segment_path
from internalize.receipts import Receipt, read_receipt
from internalize.schedule import own_steps
from internalize.stages import STAGES
from internalize.store import Store
from internalize.study_checks import unknown_name
from internalize.workflow import Plan

STEP_STAGES = ("segment", "step")


@dataclass(frozen=True)
class Wish:
    """What the user wants computed again; exactly one of arm and step, stage, row set."""

    arm: str | None = None
    seed: int | None = None
    first: int = 0
    """First step of the arm to compute again."""
    only: bool = False
    """True: nothing but what is named; what stands behind it is left as it is."""
    stage: str | None = None
    rows: str | None = None


@dataclass
class Selection:
    """What a wish comes to."""

    entries: dict[str, Receipt] = field(default_factory=dict)
    """Store entry -> its receipt; these are computed again."""
    outputs: list[str] = field(default_factory=list)
    """Receipts, as Snakemake knows them, whose jobs must run."""
    targets: list[str] = field(default_factory=list)
    """What Snakemake is asked for: the outputs, and unless `only` what is made from them and was there already."""
    only: bool = False
    shared: list[str] = field(default_factory=list)
    """Other receipts that name one of the entries."""

    def paths(self) -> list[Path]:
        """Receipts on disk that name one of the entries."""
        return [path for path in receipts_on_disk() if read_receipt(path).entry in self.entries]


def select(wish: Wish, plan: Plan, store: Store) -> Selection:
    """What a wish names in this plan.

    Raises:
        UserError: it names nothing that the plan has, or more than one thing.
    """
    if sum(word is not None for word in (wish.stage, wish.rows)) + (wish.arm is not None and wish.stage is None) != 1:
        raise UserError("name one thing to compute again", expected="--arm (with --from), --stage, or --rows")
    _check_names(wish, plan)
    jobs = jobs_of(plan)
    found = find_done(jobs, plan, store)
    chosen = Selection()
    if wish.rows is not None:
        _add_jobs(chosen, [job for job in jobs if job.rule == "rows" and job.wildcards["rows"] == wish.rows], found)
    elif wish.stage is not None:
        _add_stage(chosen, wish, jobs, found)
    else:
        _add_steps(chosen, wish, plan, jobs, found)
    chosen.only = wish.only
    chosen.targets = list(chosen.outputs) if wish.only else _with_what_follows(chosen.outputs, jobs)
    mine = set(chosen.outputs)
    chosen.shared = [path.as_posix() for path in chosen.paths() if not _belongs(path.as_posix(), wish, mine)]
    return chosen


def _with_what_follows(outputs: Sequence[str], jobs: Sequence[Job]) -> list[str]:
    """The outputs, and the receipts made from them that exist and miss nothing else: what a rerun brings up to date
    without starting what was never run."""
    targets = dict.fromkeys(outputs)
    for job in jobs:
        read = set(job.inputs)
        if read & targets.keys() and all(Path(path).exists() for path in (job.output, *(read - targets.keys()))):
            targets[job.output] = None
    return list(targets)


def _check_names(wish: Wish, plan: Plan) -> None:
    if wish.rows is not None and wish.rows not in plan.study.rows:
        raise unknown_name("row set", wish.rows, plan.study.rows, "--rows")
    if wish.arm is not None:
        if wish.arm not in plan.arms:
            raise unknown_name("arm", wish.arm, plan.arms, "--arm")
        arm = plan.arms[wish.arm]
        if wish.seed is not None and wish.seed not in arm.seeds:
            seeds = ", ".join(map(str, arm.seeds))
            raise UserError(f"arm `{arm.name}` has no such seed", where="--seed", got=str(wish.seed), expected=seeds)
        own = own_steps(arm)
        if wish.stage is None and wish.first not in own:
            expected = f"{own.start} to {own.stop - 1}"
            raise UserError(
                f"arm `{arm.name}` has no such step", where="--from", got=str(wish.first), expected=expected
            )
    stages = [*STAGES, *STEP_STAGES]
    if wish.stage is not None and wish.stage not in stages:
        raise UserError("unknown stage", where="--stage", got=wish.stage, expected=", ".join(stages))


def _add_jobs(chosen: Selection, jobs: Sequence[Job], found: Found) -> None:
    for job in jobs:
        chosen.outputs.append(job.output)
        receipt = found.jobs.get(job.output)
        if receipt is not None and job.stage != "segment":
            chosen.entries[receipt.entry] = receipt


def _add_stage(chosen: Selection, wish: Wish, jobs: Sequence[Job], found: Found) -> None:
    stage = "segment" if wish.stage in STEP_STAGES else wish.stage
    mine = [job for job in jobs if job.stage == stage and _of(job, wish)]
    _add_jobs(chosen, mine, found)
    if stage == "segment":
        runs = {(job.arm, job.seed) for job in mine}
        _add_found(chosen, found, lambda arm, seed, step: (arm, seed) in runs)
    if stage == "report" and Path(f"{RECEIPTS}/report.json").exists():
        receipt = read_receipt(Path(f"{RECEIPTS}/report.json"))
        chosen.entries[receipt.entry] = receipt
    if not mine:
        raise UserError("nothing of this stage in the plan", where="--stage", got=str(wish.stage))


def _add_steps(chosen: Selection, wish: Wish, plan: Plan, jobs: Sequence[Job], found: Found) -> None:
    arm = plan.arms[str(wish.arm)]
    last = wish.first if wish.only else own_steps(arm).stop - 1
    seeds = {job.seed for job in jobs if job.arm == arm.name and _of(job, wish)}
    _add_found(chosen, found, lambda a, s, step: a == arm.name and s in seeds and wish.first <= step <= last)
    if wish.only:
        for seed in sorted(seed for seed in seeds if seed is not None):
            chosen.outputs.append(segment_path(arm.name, seed, wish.first, wish.first))
        return
    mine = [job for job in jobs if job.arm == arm.name and _of(job, wish)]
    _add_jobs(chosen, [job for job in mine if job.stage == "segment" and job.spec["last"] >= wish.first], found)
    _add_jobs(chosen, [job for job in mine if job.stage == "evals"], found)


def _add_found(chosen: Selection, found: Found, wanted: Callable[[str, int, int], bool]) -> None:
    for (arm, seed, step), receipt in found.steps.items():
        if wanted(arm, seed, step):
            chosen.entries[receipt.entry] = receipt


def _of(job: Job, wish: Wish) -> bool:
    return (wish.arm is None or job.arm == wish.arm) and (wish.seed is None or job.seed == wish.seed)


def _belongs(path: str, wish: Wish, outputs: set[str]) -> bool:
    """Is the receipt one of what was asked for, or another one's that shares a result with it?"""
    if path in outputs or wish.arm is None:
        return True
    seed = "" if wish.seed is None else f"seed{wish.seed}"
    return path.startswith((f"{RECEIPTS}/arms/{wish.arm}/{seed}", f"{RECEIPTS}/evals/{wish.arm}/{seed}"))


def receipts_on_disk() -> list[Path]:
    """Every receipt in `results`."""
    return sorted(Path(RECEIPTS).rglob("*.json"))
