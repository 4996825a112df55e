"""Starts the command of a rule inside a job: on one node as it is, on several behind a Ray cluster or under torchrun.

Invariant: it ends only what it has started, and all of that: when the command ends, when it is told to end, and when
its own parent dies. It runs outside of the job's container and puts what it starts into it.

Before the time is up (`--signal` of sbatch) a file asks the command to stop. When it then ends with
`timelimit.REQUEUE`, the job goes back into the queue under its own id, and Snakemake notices nothing; where Slurm
refuses that, the status reaches Snakemake as a failure and its `retries` submit the job again. Both find what was
committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from internalize.cluster.allocation import Allocation
from internalize.cluster.node import GRACE, HEAD, READY, STOP, Group, address_of
from internalize.cluster.placement import BELL
from internalize.cluster.timelimit import ENDS, REQUEUE
from internalize.cluster.timelimit import STOP as STOP_FILE
from internalize.errors import UserError
from internalize.ports import free_port
from internalize.processes import die_with_parent
from internalize.store import LEASE_SECONDS

Runtime = Literal["auto", "none", "ray", "torchrun"]
FOLDER = Path(".snakemake/internalize-launch")
RUNG = 10
"""Exit status of the bell once it has rung."""
RING = f'trap "exit {RUNG}" {BELL} TERM; sleep infinity & wait'
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Nothing is reported home, and nobody else on the nodes can use our cluster."""
KILLED_WITHIN = 120.0
"""Seconds within which Slurm ends a job that it has put back into the queue."""


@dataclass(frozen=True)
class Launch:
    """How commands are started on a site."""

    runtime: Runtime = "auto"
    """On several nodes: `ray` starts a Ray cluster, `torchrun` the command as its ranks, `none` just the command on the
    first node; `auto`: `ray` where the command's `--spec` asks for it. (A segment starts torchrun by itself.)"""
    cpu_container: str = ""
    """Command line in front of what runs in a job without GPUs; empty: no container."""
    gpu_container: str = ""
    """The same for jobs with GPUs."""
    scratch: str = "/tmp"
    """Folder for temporary files on each node."""
    interface: str = ""
    """Network interface between nodes."""
    lease_seconds: int | None = None
    """How long the command waits for another writer."""
    patience: float = 300.0
    """Seconds within which all nodes must be up."""


def runtime_of(command: Sequence[str]) -> Runtime:
    """`ray` where the `--spec` of a command names it as the runtime of its ranks, else `none`."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        parallel = json.loads(command[list(command).index("--spec") + 1])["parallel"]
        if parallel["runs"]["runtime"] == "ray":
            return "ray"
    return "none"


def launch(command: Sequence[str], how: Launch, progress: Callable[[str], None]) -> int:
    """Runs `command` in the job that this process is part of; returns its exit status.

    Outside of a Slurm job the command is simply run.

    Raises:
        UserError: Slurm does not answer, or the nodes do not come up.
    """
    die_with_parent()
    signal.signal(signal.SIGTERM, _stop)
    allocation = Allocation.current()
    runtime = runtime_of(command) if how.runtime == "auto" else how.runtime
    environment = dict(os.environ)
    if how.lease_seconds is not None:
        environment[LEASE_SECONDS] = str(how.lease_seconds)
    if allocation is None:
        return _Driver([*shlex.split(how.cpu_container), *command], environment).wait([])
    container = shlex.split(how.gpu_container if allocation.gpus else how.cpu_container)
    if allocation.ends is not None:
        environment[ENDS] = str(allocation.ends)
    if how.interface:
        environment |= dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), how.interface)
    environment |= _told(allocation)
    folder = FOLDER.absolute() / f"{allocation.job}-{allocation.restarts}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment[STOP_FILE] = str(folder / "stop-after-this-step")
    nodes = ", ".join(allocation.nodes)
    progress(f"job {allocation.job}, run {allocation.restarts}: {nodes}; {allocation.gpus} GPUs a node; {runtime}")
    with contextlib.ExitStack() as stack:
        several = len(allocation.nodes) > 1
        if several and runtime == "ray":
            environment |= {**RAY, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        parts = [stack.enter_context(_bell(allocation, folder))] if allocation.gpus else []
        line = [*container, *command]
        if several and runtime == "ray":
            address, part = stack.enter_context(_ray(allocation, how, container, environment, folder, progress))
            environment["RAY_ADDRESS"] = address
            parts.append(part)
        elif several and runtime == "torchrun":
            line = torchrun(allocation, how, container, command)
        status = _Driver(line, environment).wait(parts, progress)
    if status == REQUEUE:
        return _requeue(allocation, progress)
    return status


def torchrun(allocation: Allocation, how: Launch, container: list[str], command: Sequence[str]) -> list[str]:
    """The command on every node under torchrun, one rank a GPU (one a node where there are none)."""
    head = address_of(how.interface) if how.interface else allocation.addresses[0]
    return [
        *allocation.step(*_all(allocation), "--kill-on-bad-exit=1"),
        *_python(container),
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(allocation.nodes)}",
        f"--nproc-per-node={max(1, allocation.gpus)}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={head}:{free_port()}",
        f"--rdzv-id={allocation.job}-{allocation.restarts}",
        "--no-python",
        *command,
    ]


class _Part:
    """A job step that must live as long as the command, or that rings once."""

    def __init__(self, name: str, group: Group, ring: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.group = group
        self.ring = ring
        self.heard = False

    @property
    def status(self) -> int | None:
        return self.group.child.poll()


class _Driver:
    """The command itself, in a process group of its own."""

    def __init__(self, line: list[str], environment: dict[str, str]) -> None:
        try:
            self.group = Group(line, environment)
        except OSError as error:
            raise UserError("the command cannot be started", where=line[0], got=error.strerror or str(error)) from None

    def wait(self, parts: list[_Part], progress: Callable[[str], None] = lambda text: None) -> int:
        """Waits for its end; rings the bell for it; ends it when another part is lost."""
        child = self.group.child
        try:
            while (status := child.poll()) is None:
                for part in parts:
                    if part.status is None or part.heard:
                        continue
                    part.heard = True
                    if part.name == "bell":
                        if part.status == RUNG:
                            progress("the time is almost up: the command is told to stop after its current step")
                            part.ring()
                        continue
                    progress(f"{part.name} has ended with status {part.status}: the command is ended")
                    self.group.end()
                    return 1
                time.sleep(0.1)
        finally:
            self.group.end()
        return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _bell(allocation: Allocation, folder: Path) -> Iterator[_Part]:
    """A step that waits for the signal that sbatch's `--signal` promises: only steps get it."""
    line = [*allocation.step("--gres=none", "--cpus-per-task=1", nodes=1), "/bin/sh", "-c", RING]
    part = _Part("bell", Group(line, dict(os.environ), quiet=True), (folder / "stop-after-this-step").touch)
    try:
        yield part
    finally:
        part.group.end()


@contextlib.contextmanager
def _ray(
    allocation: Allocation,
    how: Launch,
    container: list[str],
    environment: dict[str, str],
    folder: Path,
    progress: Callable[[str], None],
) -> Iterator[tuple[str, _Part]]:
    """A Ray cluster over all nodes of the job; gives its address once every node has joined."""
    pairs = zip(allocation.nodes, allocation.addresses, strict=True)
    line = [
        *allocation.step(*_all(allocation), "--kill-on-bad-exit=1", f"--output={folder}/node-%n.log"),
        *_python(container),
        *("-m", "internalize.cluster.node"),
        f"--head={allocation.nodes[0]}",
        f"--folder={folder}",
        f"--addresses={','.join(f'{name}={address}' for name, address in pairs)}",
        f"--scratch={how.scratch}",
        f"--interface={how.interface}",
        f"--cpus={allocation.cpus}",
        f"--gpus={allocation.gpus}",
        f"--patience={how.patience}",
    ]
    part = _Part("Ray", Group(line, environment))
    try:
        deadline = time.monotonic() + how.patience
        while not (folder / READY).exists():
            if part.status is not None or time.monotonic() > deadline:
                raise UserError(
                    "Ray does not start on all nodes",
                    where=str(folder),
                    got="; ".join(_last_lines(folder)) or f"srun ended with status {part.status}",
                    expected=f"{len(allocation.nodes)} nodes within {how.patience:.0f} s",
                    fix="read the logs there; `internalize doctor` checks ports and environments between nodes",
                )
            time.sleep(0.1)
        address = (folder / HEAD).read_text()
        progress(f"Ray at {address}: {len(allocation.nodes)} nodes")
        yield address, part
    finally:
        (folder / STOP).touch()
        part.group.wait(3 * GRACE)
        part.group.end()


def _told(allocation: Allocation) -> dict[str, str]:
    """What Slurm tells a job and Snakemake has taken away: its nodes; and for any `srun` in it, that a step has all
    CPUs of its nodes and runs beside others."""
    return {
        "SLURM_JOB_NUM_NODES": str(len(allocation.nodes)),
        "SLURM_JOB_NODELIST": ",".join(allocation.nodes),
        "SRUN_CPUS_PER_TASK": str(allocation.cpus),
        "SLURM_OVERLAP": "1",
    }


def _python(container: list[str]) -> list[str]:
    """The Python of this process, or that of the container."""
    return [*container, "python"] if container else [sys.executable]


def _all(allocation: Allocation) -> list[str]:
    """Options that give a step all that the job has on each node; a step gets nothing by itself."""
    gres = [f"--gres=gpu:{allocation.gpus}"] if allocation.gpus else []
    return [*gres, f"--cpus-per-task={allocation.cpus}"]


def _last_lines(folder: Path) -> list[str]:
    """The last line of each node's log."""
    texts = ((path.stem, path.read_text(errors="replace").strip()) for path in sorted(folder.glob("*.log")))
    return [f"{name}: {text.splitlines()[-1]}" for name, text in texts if text]


def _requeue(allocation: Allocation, progress: Callable[[str], None]) -> int:
    try:
        allocation.requeue()
    except UserError as error:
        progress(f"the job cannot be put back into the queue ({error.got}): it ends as failed, to be submitted again")
        return REQUEUE
    progress(f"job {allocation.job} goes back into the queue")
    time.sleep(KILLED_WITHIN)  # Slurm ends this process
    return REQUEUE


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the cleaning up short
    raise SystemExit(128 + number)
