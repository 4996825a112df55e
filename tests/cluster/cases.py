"""A study whose last jobs, the segments of one arm, run on the Slurm sandbox while a test does something to them.

A process is caught in the middle of a step by SIGSTOP: what must happen to a running job then takes as long as it
takes, whatever the machine's load.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from workbench import Bench

from internalize.cluster.sandbox import Sandbox
from internalize.files import sha256_file
from internalize.processes import Process

STEPS = 6
SETTINGS = ("study=config/mini.yaml", "arms=recite", f"set=arms.recite.steps={STEPS}")


def segment(first: int, last: int) -> str:
    """The receipt of a segment of the arm."""
    return f"results/receipts/arms/recite/seed0/steps{first:04d}-{last:04d}/step{last:04d}.json"


SEGMENT = segment(0, STEPS - 1)
ENDED = ("FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "COMPLETED")
"""States of jobs that will not run any more."""
PATIENCE = 1200.0
"""Seconds; what a test waits for takes far less, but the machine may be busy."""


@dataclass
class Case:
    """One working directory, one arm to run."""

    box: Sandbox
    reference: Bench
    """The same study, run locally to its end without any fault."""
    work: Path
    profile: Path
    site: Path
    target: str = SEGMENT
    settings: Sequence[str] = SETTINGS
    runs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    # Running

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts Snakemake on the target, in the background."""
        command = [
            *("env", "--default-signal=INT"),  # a shell that put pytest into the background has it ignored
            *(sys.executable, "-m", "snakemake", self.target, "-s", str(self.reference.checkout / "Snakefile")),
            *("--profile", str(self.profile), "--configfile", str(self.site), "--directory", str(self.work)),
            *("--jobs", "2", "--latency-wait", "10", "--slurm-status-command", "squeue"),
            *("--slurm-init-seconds-before-status-checks", "1", *arguments, "--config", *self.settings),
        ]
        with (self.work / "snakemake.log").open("ab") as log:
            run = subprocess.Popen(command, cwd=self.work, env=self.environment(), stdout=log, stderr=log)
        self.runs.append(run)
        return run

    def environment(self) -> dict[str, str]:
        """The sandbox's clients and the checkout's package."""
        path = [str(self.box.bin), str(self.reference.checkout / "bin"), os.environ["PATH"]]
        return os.environ | {
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(self.reference.checkout / "src"),
            "OMP_NUM_THREADS": "1",
        }

    def finish(self, run: subprocess.Popen[bytes], status: int = 0) -> None:
        """Waits for the end of a run and checks its exit status."""
        assert run.wait(PATIENCE) == status, self.said()

    def unlock(self) -> None:
        """Removes the locks of a killed run."""
        run = self.start("--unlock")
        self.finish(run)

    def close(self) -> None:
        """Ends what is left of a failed case."""
        for run in self.runs:
            if run.poll() is None:
                run.kill()
                run.wait()
        for job in self.jobs():
            self.box.run("scancel", job, check=False)

    # Looking

    def said(self) -> str:
        """What Snakemake and the job's launcher and segment printed."""
        logs = [self.work / "snakemake.log", *self.work.glob("logs/arms/**/*.log")]
        return "\n".join(path.read_text(errors="replace")[-6000:] for path in logs if path.exists())

    def jobs(self) -> list[str]:
        """Ids of all Slurm jobs of this case, oldest first."""
        shown = self.box.run("squeue", "-h", "-t", "all", "-o", "%A|%Z", check=False).splitlines()
        return sorted((line.split("|")[0] for line in shown if line.endswith(f"|{self.work}")), key=int)

    def state(self, job: str) -> str:
        """State of a job, as Slurm spells it."""
        return self.box.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Waits for something."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n{self.said()}"
            time.sleep(0.1)

    def committed(self) -> dict[str, tuple[int, str]]:
        """Entry -> inode and text of its `run.json`: what must not change once it is there."""
        return {
            path.parent.name: (path.stat().st_ino, path.read_text())
            for path in self.work.glob("store/step/*/run.json")
            if "." not in path.parent.name
        }

    # Catching a step

    def catch(self, after: int = 1) -> Process:
        """Stops the segment's process inside the first step that it is caught in once `after` steps are committed."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for partial in self.work.glob("store/step/*.partial"):
                process = self._writer(partial)
                if len(self.committed()) >= after and process is not None:
                    process.send(signal.SIGSTOP)
                    if partial.exists() and self._writer(partial) == process:
                        return process
                    process.send(signal.SIGCONT)  # it has just finished the step
            assert not self.runs or self.runs[-1].poll() is None, self.said()
            time.sleep(0.005)
        raise AssertionError(f"no step was caught\n{self.said()}")

    def _writer(self, partial: Path) -> Process | None:
        """The process that holds the lease of a step."""
        lease = self.work / "store" / "leases" / f"step-{partial.name.removesuffix('.partial')}"
        with contextlib.suppress(OSError):
            match = re.match(r"pid (\d+) ", lease.read_text())
            if match and Path(f"/proc/{match[1]}/cwd").resolve() == self.work:
                return Process.of(int(match[1]))
        return None

    # Judging

    def check(self, before: dict[str, tuple[int, str]]) -> None:
        """All that was committed `before` the fault is untouched, and the result is that of the undisturbed run."""
        now = self.committed()
        assert {name: now.get(name) for name in before} == before, "a committed step was computed again"
        assert not list(self.work.glob("store/step/*.replaced-*")), "two writers made different bytes"
        for step in range(STEPS):
            name = f"step{step:04d}.json"
            (path,) = self.work.glob(f"results/receipts/arms/recite/seed0/*/{name}")
            assert path.read_bytes() == (self.reference.work / SEGMENT).with_name(name).read_bytes(), name
            receipt = json.loads(path.read_text())
            for file in receipt["files"]:
                assert sha256_file(self.work / "store" / receipt["entry"] / file["path"]) == file["sha256"]
        assert len(now) == STEPS


def prepare(box: Sandbox, reference: Bench, work: Path, node: str = "", **site: object) -> Case:
    """A case with all but the arm's steps done.

    Args:
        box: the sandbox.
        reference: the finished study.
        work: a new folder.
        node: nodes that its GPU jobs may run on, as for `--nodelist`; `-node1,node2`: all but these; empty: all.
        site: further keys of the site file.
    """
    all_but_the_arm(reference, work)
    settings = yaml.safe_load(box.site.read_text())["site"]
    if node:
        settings["gpu"]["extra"] = f"--exclude={node[1:]}" if node.startswith("-") else f"--nodelist={node}"
    (work / "site.yaml").write_text(yaml.safe_dump({"site": settings | site}))
    profile = work / "profile"
    shutil.copytree(reference.checkout / "profiles" / "slurm", profile)
    return Case(box, reference, work.resolve(), profile, work / "site.yaml")


def all_but_the_arm(reference: Bench, work: Path) -> None:
    """A copy of the finished study without the arm's steps and what was made from them."""
    work.mkdir()
    shutil.copytree(reference.work / "results", work / "results", ignore=shutil.ignore_patterns("arms", "evals"))
    shutil.copytree(reference.work / ".snakemake", work / ".snakemake", ignore=shutil.ignore_patterns("log", "locks"))
    ours = shutil.ignore_patterns("step", "leases")
    shutil.copytree(reference.work / "store", work / "store", ignore=ours, copy_function=os.link)
