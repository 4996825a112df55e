"""The doctor's small jobs: one on two GPU nodes, one on a CPU node; each runs `cluster.probe` in the environment of its
role.

Invariant: a job that does not start, or a task that says nothing, is a finding and never an OK.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from internalize.cluster import probe
from internalize.cluster.finding import Finding
from internalize.cluster.site import Queue, Site

WORDS: dict[str, tuple[str, str, str]] = {
    "files": (
        "shared files",
        "what one node writes, fsyncs and renames is whole on the others",
        "run the study on a file system that all nodes share",
    ),
    "locks": (
        "locks",
        "a lock held on one node is refused on the others",
        "the store needs flock between nodes (Lustre: mounted with `flock`, not `localflock`)",
    ),
    "ports": (
        "ports",
        "nodes reach each other's free ports",
        "name the network between nodes: site.interface (such as hsn0)",
    ),
}
"""Check -> its name, what OK means, what to do."""


def probe_nodes(site: Site, folder: Path, patience: float, roles: Sequence[str] = ("gpu", "cpu")) -> Iterator[Finding]:
    """Runs a job a role below `folder`, where the study runs; gives up on a job after `patience` seconds."""
    for role in roles:
        queue, nodes = (site.gpu, 2) if role == "gpu" else (site.cpu, 1)
        shared = Path(tempfile.mkdtemp(prefix=".internalize-doctor-", dir=folder))
        try:
            told, problem = _job(site, role, queue, nodes, shared, patience)
        finally:
            shutil.rmtree(shared, ignore_errors=True)
        check = f"environment ({role})"
        if len(told) < nodes:
            fix = f"site.setup, site.container.{role}, or the limits of the partition; try by hand: {problem[1]}"
            yield Finding(check, False, f"a job of {nodes} nodes did not answer: {problem[0]}", fix)
            continue
        yield _environment(check, role, told)
        if role == "gpu":
            for name, (label, good, fix) in WORDS.items():
                bad = [f"{one['node']}: {one.get(name, 'not tried')}" for one in told if one.get(name) != probe.OK]
                yield Finding(label, not bad, "; ".join(bad) or good, fix if bad else "")


def _environment(check: str, role: str, told: list[dict[str, str]]) -> Finding:
    first = next((one for one in told if "environment" in one), {})
    said = first.get("environment", "not tried")
    ours = probe.code()
    other = sorted({one["node"] for one in told if one["code"] != ours})
    if said != probe.OK:
        return Finding(check, False, said, f"install it there (envs/), or name a container: site.container.{role}")
    if other:
        fix = "install this version there too: results would be kept under other keys"
        return Finding(check, False, f"another version of internalize on {', '.join(other)}", fix)
    return Finding(check, True, f"{probe.IMPORTS[role]} can be imported; same code as here")


def _job(
    site: Site, role: str, queue: Queue, nodes: int, shared: Path, patience: float
) -> tuple[list[dict[str, str]], tuple[str, str]]:
    """What each task told, and what went wrong with the command that was run."""
    options = [
        ("--partition", queue.partition),
        ("--account", site.paying),
        ("--qos", queue.qos),
        ("--constraint", queue.constraint),
        ("--reservation", site.reservation),
        ("--gres", f"gpu:{site.gpu.type}:1" if role == "gpu" else None),
    ]
    container = site.container.gpu if role == "gpu" else site.container.cpu
    words = [*shlex.split(container), *((sys.executable,) if not container else ("python",))]
    asked = [str(shared), role, site.interface or "", str(probe.PATIENCE)]
    inner = shlex.join([*words, "-m", "internalize.cluster.probe", *asked])
    line = [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--time=5",
        "--quiet",
        "--kill-on-bad-exit=0",
        *(f"{option}={value}" for option, value in options if value),
        *shlex.split(queue.extra),
        *("bash", "-c", "; ".join([*site.setup, inner])),
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SRUN_"))}
    environment |= {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, check=False, timeout=patience, cwd=shared.parent, env=environment
        )
        out, problem = done.stdout, _telling(done.stderr) or f"status {done.returncode}"
    except subprocess.TimeoutExpired:
        out, problem = "", f"nothing within {patience:.0f} s (is the queue long? --patience)"
    told = []
    for text in out.splitlines():
        try:
            told.append(dict(json.loads(text)))
        except ValueError:  # what a module file prints
            continue
    return told, (problem, shlex.join(line))


def _telling(stderr: str) -> str:
    """The first line that a task wrote, else the first of srun."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("srun: ")), lines[0] if lines else "")
