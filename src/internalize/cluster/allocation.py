"""What this job was given: nodes, GPUs, CPUs and time, asked from Slurm.

Invariant: the answer is Slurm's own, not the environment's: Snakemake's job step removes most `SLURM_*` variables
before a rule's shell starts, and a requeued job may lie on other nodes than before.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass

from internalize.errors import UserError

JOB = "SLURM_JOB_ID"
GPUS = re.compile(r"gpu(?::[\w.-]+)?[:=](\d+)")


@dataclass(frozen=True)
class Allocation:
    """One Slurm job, seen from inside."""

    job: str
    nodes: list[str]
    """Host names, the one that runs the batch script first."""
    addresses: list[str]
    """Their addresses, as Slurm reaches them."""
    gpus: int
    """GPUs of each node."""
    cpus: int
    """CPUs of the job on each node."""
    ends: float | None
    """When its time is up, seconds since 1970; None: no limit."""
    restarts: int
    """How often it has been requeued."""

    @classmethod
    def current(cls) -> Allocation | None:
        """The job that this process runs in; None outside of Slurm.

        Raises:
            UserError: Slurm does not answer.
        """
        job = os.environ.get(JOB)
        if not job:
            return None
        fields = _fields(client("scontrol", "--oneliner", "show", "job", job, attempts=12))
        nodes = client("scontrol", "show", "hostnames", fields["NodeList"]).split()
        head = fields.get("BatchHost")
        nodes.sort(key=lambda name: name != head)  # stable: the others keep Slurm's order
        shown = client("scontrol", "--oneliner", "show", "node", fields["NodeList"]).splitlines()
        known = {one["NodeName"]: one.get("NodeAddr", one["NodeName"]) for one in map(_fields, shown) if one}
        gpus = GPUS.search(fields.get("TresPerNode", ""))
        end = fields.get("EndTime", "")
        return cls(
            job=job,
            nodes=nodes,
            addresses=[known.get(name, name) for name in nodes],
            gpus=int(gpus[1]) if gpus else 0,
            cpus=max(1, int(fields.get("NumCPUs", "1")) // len(nodes)),
            ends=float(end) if end.isdigit() else None,
            restarts=int(fields.get("Restarts", "0")),
        )

    def step(self, *options: str, nodes: int | None = None) -> list[str]:
        """An `srun` command line for one task on each node (or on the first `nodes` of them), beside other steps.

        Args:
            options: more options for srun.
            nodes: how many nodes; None: all.
        """
        chosen = self.nodes[: nodes or len(self.nodes)]
        return [
            "srun",
            f"--nodes={len(chosen)}",
            f"--ntasks={len(chosen)}",
            "--ntasks-per-node=1",
            f"--nodelist={','.join(chosen)}",
            "--overlap",
            "--mem=0",
            *options,
        ]

    def requeue(self) -> None:
        """Puts this job back into the queue; Slurm ends it and starts it again, under the same id.

        Raises:
            UserError: Slurm refuses (the job was submitted with `--no-requeue`).
        """
        client("scontrol", "requeue", self.job)


def client(*command: str, attempts: int = 1) -> str:
    """Runs a Slurm client; returns what it printed. Times come as seconds since 1970.

    Args:
        command: the client and its arguments.
        attempts: how often to ask while the controller cannot be reached, ten seconds between.

    Raises:
        UserError: the client is missing, fails or does not answer.
    """
    environment = os.environ | {"SLURM_TIME_FORMAT": "%s"}
    while True:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
        except FileNotFoundError:
            raise UserError("Slurm's commands are not on PATH", got=f"no {command[0]}") from None
        except subprocess.TimeoutExpired:
            raise UserError("Slurm does not answer", where=" ".join(command), got="nothing for two minutes") from None
        if done.returncode == 0:
            return done.stdout
        attempts -= 1
        if attempts < 1 or "contact slurm controller" not in done.stderr:
            raise UserError(f"{command[0]} failed", where=" ".join(command), got=done.stderr.strip())
        time.sleep(10)


def _fields(line: str) -> dict[str, str]:
    """`A=1 B=2 ...` as a dict; words without `=` are left out."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)
