"""Ending what runs (`cancel`) and freeing the directory after a crash (`unlock`).

Invariant: a lock is removed only when no job that it protects can still write: Snakemake, its jobs here and its Slurm
jobs are gone. Ending a job costs at most its current step, what is committed stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from internalize.control import processes, slurm
from internalize.control.drive import Driver
from internalize.control.processes import StudyProcess
from internalize.control.slurm import SlurmJob
from internalize.errors import UserError

LOCKS = Path(".snakemake/locks")
POLL = 2.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Live:
    """What of the study runs now."""

    processes: list[StudyProcess]
    jobs: list[SlurmJob]

    def __bool__(self) -> bool:
        return bool(self.processes or self.jobs)

    @property
    def drivers(self) -> list[StudyProcess]:
        """Snakemake itself."""
        return [one for one in self.processes if one.driver]

    def lines(self) -> list[str]:
        """One line each."""
        told = [f"pid {one.pid}: {one.what}" for one in self.processes]
        return told + [f"slurm job {job.id}: {job.what} ({job.state})" for job in self.jobs]


def live(folder: Path, prefix: str | None, use_slurm: bool = True) -> Live:
    """What of the study in `folder` runs.

    Raises:
        UserError: a run here has used Slurm, and its queue cannot be seen.
    """
    jobs: list[SlurmJob] = []
    if use_slurm and slurm.present():
        try:
            jobs = slurm.live_jobs(folder, prefix)
        except UserError:
            if slurm.was_used(folder):
                raise
    elif use_slurm and slurm.was_used(folder):
        raise UserError(
            "a run here has submitted jobs to Slurm, and there is no `squeue` on this machine",
            fix="call this where Slurm's commands are, or add --no-slurm if you know that no job of it lives",
        )
    return Live(processes.ours(folder), jobs)


def cancel(
    folder: Path, prefix: str | None, run: tuple[str | None, int | None], seconds: float, use_slurm: bool, say: Say
) -> Live:
    """Ends Snakemake, its jobs here and its Slurm jobs; returns what still runs after `seconds`.

    Args:
        folder: working directory of the study.
        prefix: job-name prefix; None takes any.
        run: arm and seed to end; (None, None) ends everything, Snakemake too.
        seconds: patience.
        use_slurm: False leaves Slurm alone.
        say: takes a line a thing done.
    """
    now = chosen(live(folder, prefix, use_slurm), run)
    # Snakemake first: it must not start or submit what is ended next
    processes.terminate(now.drivers)
    slurm.cancel(now.jobs)
    processes.terminate([one for one in now.processes if not one.driver])
    for line in now.lines():
        say(f"ended: {line}")
    end = time.monotonic() + seconds
    while (left := chosen(live(folder, prefix, use_slurm), run)) and time.monotonic() < end:
        new = [job for job in left.jobs if job not in now.jobs]
        slurm.cancel([job for job in new if job.state != "COMPLETING"])
        processes.terminate([one for one in left.processes if not one.driver and one not in now.processes])
        time.sleep(min(POLL, max(0.0, end - time.monotonic())))
    return left


def chosen(now: Live, run: tuple[str | None, int | None]) -> Live:
    """The part of what runs that belongs to an arm (and seed); everything when no arm is named."""
    arm, seed = run
    if arm is None:
        return now

    def mine(one: StudyProcess | SlurmJob) -> bool:
        return one.run is not None and one.run[0] == arm and seed in (None, one.run[1])

    return Live([one for one in now.processes if mine(one)], [job for job in now.jobs if mine(job)])


def locked(folder: Path) -> list[Path]:
    """Snakemake's lock files in `folder`."""
    return sorted((folder / LOCKS).glob("*.lock"))


def unlock(
    folder: Path, prefix: str | None, driver: Driver, seconds: float, end_jobs: bool, use_slurm: bool, say: Say
) -> None:
    """Removes Snakemake's locks once nothing that they protect runs.

    Args:
        folder: working directory of the study.
        prefix: job-name prefix; None takes any.
        driver: how Snakemake is called.
        seconds: how long to wait for jobs of a killed run.
        end_jobs: True cancels them instead of waiting.
        use_slurm: False leaves Slurm alone.
        say: takes a line a thing done.

    Raises:
        UserError: Snakemake runs, or its jobs still run after the wait.
    """
    now = live(folder, prefix, use_slurm)
    if now.drivers:
        raise UserError(
            "Snakemake runs here, its locks are in use",
            got="; ".join(now.lines()),
            fix="let it finish, or end it with `internalize cancel`",
        )
    if now and end_jobs:
        now = cancel(folder, prefix, (None, None), seconds, use_slurm, say)
    end = time.monotonic() + seconds
    while now and time.monotonic() < end:
        say(f"waiting for {len(now.lines())} jobs of an earlier run: {'; '.join(now.lines())}")
        time.sleep(min(5 * POLL, max(0.0, end - time.monotonic())))
        now = live(folder, prefix, use_slurm)
    if now:
        raise UserError(
            "jobs of an earlier run still run: a new run would work beside them",
            got="; ".join(now.lines()),
            fix="wait longer (--wait SECONDS), or end them (--cancel); what they have committed is kept",
        )
    locks = locked(folder)
    if not locks:
        say("not locked")
        return
    driver.unlock()
    say(f"unlocked ({len(locks)} locks)")
