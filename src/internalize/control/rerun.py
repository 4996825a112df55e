"""Computing a part of a study again: what is set aside, what then runs, what it costs.

Invariant: nothing is deleted before its replacement is verified. A result that is to be computed again is set aside
under another name; if the run fails it is put back, if the new one has the same bytes it is removed, and if they differ
both stay. A dry run changes nothing and lists the jobs that the run would execute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from internalize.control.drive import Driver, Listed
from internalize.costs.estimate import Estimate, Part, Priced, estimate
from internalize.costs.found import Found, find_done
from internalize.costs.jobs import Job, jobs_of
from internalize.errors import UserError
from internalize.inputs import SEGMENT, segment_receipt
from internalize.receipts import Receipt, read_receipt, write_receipt
from internalize.stages import STAGES
from internalize.store import RECEIPT, Store
from internalize.study_arms import Arm
from internalize.study_checks import unknown_name
from internalize.workflow import RECEIPTS, Plan

ASIDE = ".set-aside"
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
        return [path for path in _receipts() if read_receipt(path).entry in self.entries]


@dataclass(frozen=True)
class Line:
    """A job of the dry run with what it will compute."""

    job: Listed
    label: str
    parts: tuple[Part, ...]
    """What is really computed; empty when the store has it all."""
    node_hours: float
    seconds: float


@dataclass(frozen=True)
class Preview:
    """What a rerun would do."""

    lines: list[Line]
    aside: int
    """Bytes that are set aside meanwhile."""

    @property
    def node_hours(self) -> float:
        """Of all lines."""
        return sum(line.node_hours for line in self.lines)


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


def preview(chosen: Selection, plan: Plan, driver: Driver, store: Store) -> Preview:
    """What `perform` would run and what it would cost; changes nothing."""
    listed = driver.dry_run(chosen.targets, chosen.outputs)
    priced = without(estimate(plan, store), chosen)
    by_output = {one.job.output: one for one in priced.priced}
    lines = [_line(job, by_output.get(job.output), priced, chosen) for job in listed]
    return Preview(lines, sum(receipt.payload_bytes() for receipt in chosen.entries.values()))


def perform(chosen: Selection, driver: Driver, store: Store, say: Callable[[str], None]) -> int:
    """Sets the selection aside, runs Snakemake, and compares; returns Snakemake's exit status."""
    moved = list(_set_aside(chosen, store))
    say(f"set aside: {len(chosen.entries)} results")
    status = 1
    try:
        status = driver.run(chosen.targets, chosen.outputs)
    finally:
        same, changed, back = _settle(moved, store, chosen)
        if back:
            say(f"put back, because they were not computed again: {back} results")
        say(f"computed again: {same + len(changed)} results, {same} of them came out the same")
        for entry, where in changed:
            say(f"differs: {entry}; the one before lies in {where}")
        if changed and (stale := _renew(changed, store)):
            say(f"made from what differs, runs with the next run of the study: {' '.join(stale)}")
    return status


def without(priced: Estimate, chosen: Selection) -> Estimate:
    """The estimate as if the store did not hold the selection."""
    gone = set(chosen.entries)
    steps = {step for step, receipt in priced.found.steps.items() if receipt.entry in gone}
    again = []
    for one in priced.priced:
        parts = tuple(
            replace(p, done=False)
            if (str(one.job.arm), int(one.job.seed or 0), p.step) in steps
            or (one.job.stage != "segment" and one.job.output in chosen.outputs)
            else p
            for p in one.parts
        )
        again.append(replace(one, parts=parts))
    return replace(priced, priced=again)


def own_steps(arm: Arm) -> range:
    """The steps of an arm that are its own, not those of an arm that it continues."""
    inherited = len(getattr(arm, "inherited", []))
    return range(inherited, inherited + arm.steps)


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
            path = f"{RECEIPTS}/arms/{segment_receipt(arm.name, seed, wish.first, wish.first)}"
            chosen.outputs.append(path)
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


def _line(job: Listed, one: Priced | None, priced: Estimate, chosen: Selection) -> Line:
    if one is None:  # a single step, or a rule that the cost model does not know
        steps = _single(job, priced, chosen)
        if steps is None:
            words = " ".join([job.rule, *job.wildcards.values()])
            return Line(job, f"{words} (no price)", (), 0.0, 0.0)
        one = steps
    left = tuple(one.left)
    seconds = one.start + sum(part.seconds for part in left) if left else 0.0
    return Line(job, one.job.label, left, seconds * one.nodes / 3600, seconds)


def _single(job: Listed, priced: Estimate, chosen: Selection) -> Priced | None:
    """The price of one step, cut out of the segment that it belongs to."""
    if job.rule != "segment":
        return None
    arm, seed = job.wildcards["arm"], int(job.wildcards["seed"])
    first, last = int(job.wildcards["first"]), int(job.wildcards["last"])
    for one in priced.priced:
        if one.job.stage == "segment" and (one.job.arm, one.job.seed) == (arm, seed):
            parts = tuple(part for part in one.parts if first <= part.step <= last)
            if parts:
                cut = replace(one.job, wildcards=dict(job.wildcards), output=job.output)
                return replace(one, job=cut, parts=parts)
    return None


def _receipts() -> list[Path]:
    return sorted(Path(RECEIPTS).rglob("*.json"))


def _set_aside(chosen: Selection, store: Store) -> Iterator[tuple[Path, Path]]:
    """Renames entries and their receipts; yields (place, where it lies now)."""
    paths = chosen.paths() if not chosen.only else [Path(path) for path in chosen.outputs if Path(path).exists()]
    for place in [*(store.root / entry for entry in chosen.entries), *paths]:
        if place.exists():
            aside = place.with_name(place.name + ASIDE)
            if aside.exists():
                _remove(aside)
            os.replace(place, aside)
            yield place, aside


def _settle(
    moved: Sequence[tuple[Path, Path]], store: Store, chosen: Selection
) -> tuple[int, list[tuple[str, Path]], int]:
    """Same results are dropped, missing ones put back; returns how many were the same, which differ, how many came
    back."""
    same, back = 0, 0
    changed: list[tuple[str, Path]] = []
    for place, aside in moved:
        entry = place.relative_to(store.root).as_posix() if place.is_relative_to(store.root) else None
        if not place.exists():
            os.replace(aside, place)
            back += entry is not None
        elif entry is None:
            aside.unlink()
        elif read_receipt(place / RECEIPT).hash() == chosen.entries[entry].hash():
            _remove(aside)
            same += 1
        else:
            changed.append((entry, aside))
    return same, changed, back


def _renew(changed: Sequence[tuple[str, Path]], store: Store) -> list[str]:
    """Receipts that still name what a result was before: they are renewed, and the receipts of the segments that went
    on from it are taken away, so that the next run makes them anew; returns those."""
    stale = []
    for entry, _ in changed:
        new = read_receipt(store.root / entry / RECEIPT)
        for path in _receipts():
            old = read_receipt(path)
            if old.entry != entry or old == new:
                continue
            write_receipt(path, new)
            if match := SEGMENT.search(path.as_posix()):
                step = int(path.stem.removeprefix("step"))
                for folder in path.parents[1].glob("steps*"):
                    last = int(folder.name[-4:])
                    end = folder / f"step{last:04d}.json"
                    if last >= step and end.exists() and folder.name != f"steps{step:04d}-{step:04d}":
                        end.unlink()
                        stale.append(f"{match['arm']}/seed{match['seed']}/{folder.name}")
    return stale


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
