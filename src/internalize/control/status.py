"""Where a study stands: every step of every arm, what runs, what failed, how long it will take.

Invariant: looking changes nothing; a step counts as done exactly when the store holds it under the settings and code of
now, and as running only when a live job that has to run it is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from internalize.budget import read_mark
from internalize.control import processes, slurm
from internalize.control.beats import Beat, beats
from internalize.control.failures import Failure, last_failures
from internalize.control.processes import StudyProcess
from internalize.control.slurm import SlurmJob
from internalize.costs.estimate import Estimate, Priced, critical_path, estimate
from internalize.costs.model import HOUR
from internalize.errors import UserError
from internalize.inputs import SEGMENT
from internalize.receipts import Receipt
from internalize.schedule import own_steps, phases
from internalize.store import Store
from internalize.workflow import Plan

DONE, STOPPED, RUNNING, QUEUED, FAILED, WAITING = "done", "stopped", "running", "queued", "failed", "waiting"


@dataclass(frozen=True)
class Row:
    """One arm and seed."""

    arm: str
    seed: int
    steps: list[tuple[str, str]]
    """Phase and state of each step."""
    evals: str
    """State of its evals."""
    jobs: list[str]
    """Live jobs: Slurm job ids, or `pid N`."""
    left_s: float
    """Seconds to the end of its evals if nothing waits."""
    note: str = ""
    """Why it goes no further, if it does not."""
    first: int = 0
    """Number of its first step."""


@dataclass(frozen=True)
class Board:
    """The study at one moment."""

    study: str
    rows: list[Row]
    stages: dict[str, tuple[int, int]]
    """Other stages: jobs done, jobs in all."""
    drivers: list[StudyProcess]
    jobs: list[SlurmJob]
    failures: list[Failure]
    left_s: float
    """Seconds to the end along the longest chain."""
    warning: str = ""
    """What could not be seen."""
    phases: list[str] = field(default_factory=list)
    total: tuple[int, int] = (0, 0)
    """Jobs done, jobs in all."""
    node_s: float = 0.0
    """Seconds that one machine needs for all that is left; 0 where a job has nodes of its own."""
    others: list[StudyProcess] = field(default_factory=list)
    """Jobs on this machine that belong to no arm."""
    beats: list[Beat] = field(default_factory=list)
    """Heartbeats of running steps."""

    @property
    def eta_s(self) -> float:
        """Seconds to the end: along the longest chain, and at least what one machine needs for all of it."""
        return max(self.left_s, self.node_s)

    @property
    def live(self) -> bool:
        """Does anything run?"""
        return bool(self.drivers or self.jobs or self.others or any(row.jobs for row in self.rows))


def look(plan: Plan, store: Store, folder: Path, prefix: str | None = None) -> Board:
    """Looks at receipts, store, processes and, where there is a Slurm, at its queue."""
    warning, queue = "", list[SlurmJob]()
    if slurm.present():
        try:
            queue = slurm.live_jobs(folder, prefix)
        except UserError as error:
            if slurm.was_used(folder):
                warning = f"the queue cannot be seen: {error.what} ({error.got})"
    ours = processes.ours(folder)
    failures = last_failures(folder)
    priced = estimate(plan, store)
    rows = [
        _row(plan, arm.name, seed, priced, queue, ours, failures) for arm in plan.arms.values() for seed in arm.seeds
    ]
    stages = {
        name: (part.jobs - part.jobs_left, part.jobs)
        for name, part in priced.by_stage().items()
        if name not in ("segment", "graphs", "page")
    }
    total = priced.total()
    used = sorted({phase for row in rows for phase, _ in row.steps}, key=["sft", "rl", "joint"].index)
    return Board(
        plan.study.name,
        rows,
        stages,
        [one for one in ours if one.driver],
        queue,
        failures,
        critical_path(priced.priced),
        warning,
        list(used),
        (total.jobs - total.jobs_left, total.jobs),
        total.node_hours * HOUR if plan.study.cost.nodes < 1 else 0.0,
        [one for one in ours if not one.driver and one.run is None],
        beats(store.root / "running"),
    )


def _row(
    plan: Plan,
    arm: str,
    seed: int,
    priced: Estimate,
    queue: list[SlurmJob],
    ours: list[StudyProcess],
    failures: list[Failure],
) -> Row:
    mine = [one for one in queue if one.run == (arm, seed)]
    local = [one for one in ours if not one.driver and one.run == (arm, seed)]
    done = {step: priced.found.steps[arm, seed, step] for a, s, step in priced.found.steps if (a, s) == (arm, seed)}
    failed = _failed_steps(arm, seed, failures)
    active = {step: RUNNING for one in local for step in one.steps}
    for one in mine:
        active |= dict.fromkeys(one.steps, RUNNING if one.state in ("RUNNING", "COMPLETING") else QUEUED)
    steps: list[tuple[str, str]] = []
    current = False
    order = phases(plan.arms[arm])
    for step in own_steps(plan.arms[arm]):
        phase = order[step]
        if step in done:
            state = STOPPED if done[step].status == "stopped" else DONE
        elif active.get(step) == RUNNING:
            state, current = (WAITING if current else RUNNING), True
        elif step in active:
            state = QUEUED
        else:
            state, failed = (FAILED, range(0)) if step in failed else (WAITING, failed)
        steps.append((phase, state))
    chain = [one for one in priced.priced if one.job.arm == arm and one.job.seed == seed]
    return Row(
        arm,
        seed,
        steps,
        _evals_state(chain, mine, local),
        [one.id for one in mine] + [f"pid {one.pid}" for one in local],
        critical_path(chain),
        _note(plan, arm, seed, done),
        own_steps(plan.arms[arm]).start,
    )


def _evals_state(chain: list[Priced], mine: list[SlurmJob], local: list[StudyProcess]) -> str:
    evals = [one for one in chain if one.job.stage == "evals"]
    if evals and all(not one.left for one in evals):
        return DONE
    jobs = [one.state for one in mine if one.rule == "evals"] + ["RUNNING" for one in local if one.rule == "evals"]
    return RUNNING if "RUNNING" in jobs else QUEUED if jobs else WAITING


def _failed_steps(arm: str, seed: int, failures: list[Failure]) -> range:
    for failure in failures:
        match = SEGMENT.search(failure.output)
        if match and (match["arm"], int(match["seed"])) == (arm, seed):
            return range(int(match["first"]), int(match["last"]) + 1)
    return range(0)


def _note(plan: Plan, arm: str, seed: int, done: dict[int, Receipt]) -> str:
    end = plan.budget_end(plan.arms[arm], seed)
    mark = read_mark(arm, seed)
    if end is not None and mark is not None:
        return f"stopped: budget, after step {end}" if end >= 0 else "stopped: budget, before its first step"
    for receipt in done.values():
        if "stopped_at" in receipt.facts:
            return f"stopped at step {receipt.facts['stopped_at']}: {'; '.join(receipt.facts['reasons'])}"
    return ""
