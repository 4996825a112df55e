"""Our live Slurm jobs, as `squeue` lists them.

Invariant: a job counts as ours only when this user submitted it from this working directory under the name that
Snakemake's Slurm executor gives (`[prefix_]<uuid>`); no other job is ever cancelled.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from internalize.cluster.allocation import client

FORMAT = "%i|%j|%T|%M|%L|%Z|%R|%k"
"""Job id, name, state, time used, time left, working directory, reason or nodes, comment (checked on Slurm 22.05)."""
LIVE = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED"),
        *("RESIZING", "REQUEUED", "REQUEUE_HOLD", "SIGNALING", "STAGE_OUT"),
    }
)
NAME = re.compile(r"(?:(?P<prefix>.+)_)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
WILDCARDS = {
    "segment": re.compile(r"(?P<arm>.+)_(?P<seed>\d+)_(?P<first>\d{4})_(?P<last>\d{4})"),
    "evals": re.compile(r"(?P<arm>.+)_(?P<seed>\d+)"),
    "convert": re.compile(r"(?P<arm>.+)_(?P<seed>\d+)_\d{4}"),
}
"""Wildcards of the rules whose jobs belong to an arm, as the executor joins them."""


@dataclass(frozen=True)
class SlurmJob:
    """One line of `squeue`."""

    id: str
    name: str
    state: str
    used: str
    left: str
    reason: str
    comment: str

    @property
    def what(self) -> str:
        """The rule and its wildcards, as the executor writes them into the comment."""
        return self.comment.removeprefix("rule_").replace("_wildcards_", " ")

    @property
    def rule(self) -> str:
        """Name of the rule."""
        return self.comment.removeprefix("rule_").partition("_wildcards_")[0]

    @property
    def run(self) -> tuple[str, int] | None:
        """Arm and seed that the job belongs to, if it is one run's."""
        match = self._wildcards()
        return (match["arm"], int(match["seed"])) if match else None

    @property
    def steps(self) -> range:
        """Steps that the job trains; empty when it trains none."""
        match = self._wildcards()
        return range(int(match["first"]), int(match["last"]) + 1) if match and self.rule == "segment" else range(0)

    def _wildcards(self) -> re.Match[str] | None:
        pattern = WILDCARDS.get(self.rule)
        return pattern.fullmatch(self.comment.partition("_wildcards_")[2]) if pattern else None


def present() -> bool:
    """Is there a Slurm client on this machine?"""
    return shutil.which("squeue") is not None


def command() -> list[str]:
    """The `squeue` call that is used."""
    return ["squeue", "--me", "--noheader", "--format", FORMAT]


def live_jobs(folder: Path, prefix: str | None = None) -> list[SlurmJob]:
    """Live jobs of this user that the Slurm executor submitted from `folder`.

    Args:
        folder: working directory of the study.
        prefix: `slurm-jobname-prefix` of the profile; None takes any.

    Raises:
        UserError: `squeue` fails (Slurm cannot be reached).
    """
    home = folder.resolve()
    jobs = []
    for line in client(*command()).splitlines():
        fields = line.strip().split("|", 7)
        if len(fields) != 8:
            continue
        number, name, state, used, left, where, reason, comment = fields
        match = NAME.match(name)
        if match is None or state not in LIVE or Path(where).resolve() != home:
            continue
        if prefix is not None and match["prefix"] != prefix:
            continue
        jobs.append(SlurmJob(number, name, state, used, left, reason, comment))
    return jobs


def cancel(jobs: Sequence[SlurmJob]) -> None:
    """Cancels the jobs.

    Raises:
        UserError: `scancel` fails.
    """
    if jobs:
        client("scancel", *(job.id for job in jobs))


def was_used(folder: Path) -> bool:
    """Has a run in `folder` submitted to Slurm? Then jobs of it may live that no process here shows."""
    logs = sorted((folder / ".snakemake" / "log").glob("*.snakemake.log"))
    return any("SLURM run ID" in path.read_text(errors="replace") for path in logs)
