"""Our processes on this machine: Snakemake, and the jobs that it runs.

Invariant: a process is ours only when this user owns it, its working directory is the study's and its command line is
Snakemake's or a stage's; only such a process is ever signalled, by its id.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from internalize.processes import PROC, Process

NOT_DRIVING = frozenset({"--mode", "--unlock", "-n", "--dry-run", "--rulegraph", "--dag", "--lint"})
"""Words of a Snakemake that runs no jobs, or that runs within one."""
PROGRAMS = frozenset({"snakemake", "internalize", "internalize.cli"})
"""Names that our processes are started by."""
JOBS = frozenset({"stage", "segment", "gates", "archive", "page", "graphs"})
"""Commands that rules call (rules/*.smk)."""
OUTPUT = re.compile(
    r"receipts/(?P<kind>arms|evals|convert)/(?P<arm>[^/]+)/seed(?P<seed>\d+)"
    r"(?:/steps(?P<first>\d{4})-(?P<last>\d{4})/|/step\d{4}\.json|\.json)"
)


@dataclass(frozen=True)
class StudyProcess(Process):
    """One process of the study."""

    words: tuple[str, ...]
    driver: bool
    """True: Snakemake itself; False: a job."""

    @property
    def what(self) -> str:
        """In short: `snakemake`, or the stage and its receipt."""
        return "snakemake" if self.driver else f"{self.words[1]} {self.output}".strip()

    @property
    def rule(self) -> str:
        """Rule of a job that belongs to an arm; else empty."""
        match = OUTPUT.search(self.output)
        return {"arms": "segment"}.get(match["kind"], match["kind"]) if match else ""

    @property
    def output(self) -> str:
        """Receipt that a job writes."""
        with contextlib.suppress(ValueError, IndexError):
            return self.words[self.words.index("--output") + 1]
        return ""

    @property
    def run(self) -> tuple[str, int] | None:
        """Arm and seed that a job belongs to, if it is one run's."""
        match = OUTPUT.search(self.output)
        return (match["arm"], int(match["seed"])) if match else None

    @property
    def steps(self) -> range:
        """Steps that a job trains; empty when it trains none."""
        match = OUTPUT.search(self.output)
        return range(int(match["first"]), int(match["last"]) + 1) if match and match["first"] else range(0)


def ours(folder: Path) -> list[StudyProcess]:
    """Living processes of the study in `folder`, Snakemake first; none where there is no /proc."""
    home, me = folder.resolve(), os.getuid()
    found = []
    for entry in sorted(PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid != me or (entry / "cwd").resolve() != home or int(entry.name) == os.getpid():
                continue
            words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            if not words[0]:
                continue  # ended, not yet collected
            one = _process(int(entry.name), words)
            if one is not None:
                found.append(one)
    return sorted(found, key=lambda one: not one.driver)


def _process(pid: int, words: Sequence[str]) -> StudyProcess | None:
    """The process of a command line; None when it is neither Snakemake nor a stage."""
    at = 0 if Path(words[0]).name in PROGRAMS else 2 if words[1:2] == ["-m"] else 1  # itself, python -m, or a script
    name, rest = Path(words[at]).name if at < len(words) else "", words[at + 1 :]
    driver = name in ("snakemake", "snakemake.__main__") and not NOT_DRIVING & set(words)
    if not driver and not (name in PROGRAMS and rest and rest[0] in JOBS):
        return None
    found = Process.of(pid)
    return StudyProcess(found.pid, found.started, tuple(words[at:]), driver) if found is not None else None


def terminate(processes: Sequence[StudyProcess]) -> None:
    """Asks them to end (SIGTERM): Snakemake starts no further job, a job leaves its current step uncommitted."""
    for one in processes:
        one.send(signal.SIGTERM)
