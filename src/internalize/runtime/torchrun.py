"""Training ranks under torchrun: on this machine, or on every node of a Slurm job.

Invariant: when a `TorchrunRanks` is made all ranks have connected; when it is closed, or its process ends, none is
left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, cast

import internalize
from internalize.ports import free_port
from internalize.runtime.answers import GRACE_SECONDS, Gone, results
from internalize.runtime.failures import WorkerLost
from internalize.runtime.launch import ADDRESS, KEY, receive, send

START_SECONDS = 300.0
CLOSE_SECONDS = 10.0
MODULE = "internalize.runtime.launch"
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank +: (\d+).*?exitcode +: (-?\d+)", re.DOTALL)
"""In torchrun's account of a failure."""


class TorchrunRanks:
    """`Ranks` that torchrun starts.

    Args:
        ranks: how many.
        log: file that takes what torchrun and the ranks print.
        environ: of this process; a Slurm job of several nodes is read off it.

    Raises:
        WorkerLost: torchrun ended, or a rank did not connect in time.
    """

    def __init__(self, ranks: int, log: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.log = log
        self.processes: dict[str, int] = {}
        """Name of a rank -> process id, of ranks on this machine."""
        nodes = int(environ.get("SLURM_JOB_NUM_NODES", "1"))
        host = socket.gethostname() if nodes > 1 else "127.0.0.1"
        key = secrets.token_bytes(32)
        self._connections: dict[str, Connection] = {}
        log.parent.mkdir(parents=True, exist_ok=True)
        with Listener((host, 0), authkey=key, backlog=ranks) as listener, log.open("ab") as output:
            source = str(Path(internalize.__file__).resolve().parents[1])
            self._process = subprocess.Popen(
                command(ranks, nodes, host),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **environ,
                    ADDRESS: f"{host}:{listener.address[1]}",
                    KEY: key.hex(),
                    "PYTHONPATH": os.pathsep.join(p for p in (source, environ.get("PYTHONPATH")) if p),
                    "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS", "1"),
                },
            )
            try:
                found = self._accept(listener, ranks)
            except BaseException:
                self.close()
                raise
        for rank in range(ranks):
            self._connections[f"rank {rank}"], place, pid = found[rank]
            if place == socket.gethostname():
                self.processes[f"rank {rank}"] = pid

    def call(self, name: str, *arguments: Any) -> list[tuple[Any, float]]:
        """See `group.Ranks`."""
        answers: dict[str, Any] = dict.fromkeys(self._connections)
        for rank, connection in self._connections.items():
            try:
                send(connection, (name, arguments))
            except OSError as error:
                answers[rank] = Gone(f"the connection is closed ({error.strerror or error})")
        waiting = {connection: rank for rank, connection in self._connections.items() if answers[rank] is None}
        deadline: float | None = None
        while waiting:
            if deadline is None and any(not isinstance(answer, tuple | None) for answer in answers.values()):
                deadline = time.monotonic() + GRACE_SECONDS
            ready = wait(list(waiting), None if deadline is None else max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for one in cast(list[Connection], ready):
                answers[waiting.pop(one)] = _receive(one)
            if any(isinstance(answer, Gone) for answer in answers.values()):
                break  # torchrun ends the others now
        return results(self._culprit_first(answers), name, self._last_words())

    def close(self) -> None:
        """See `group.Ranks`; idempotent."""
        self._process.terminate()  # torchrun passes it on; a rank that waits in a collective dies of it, too
        for connection in self._connections.values():
            connection.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in self.processes.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if _is_rank(pid):
                    os.kill(pid, signal.SIGKILL)

    def _culprit_first(self, answers: dict[str, Any]) -> dict[str, Any]:
        """Torchrun knows which rank ended first; the connections of the others end soon after it."""
        if not any(isinstance(answer, Gone) for answer in answers.values()):
            return answers
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        found = _ROOT_CAUSE.search(self._last_words())
        name = f"rank {found[1]}" if found else ""
        if found is None or name not in answers:
            return answers
        return {name: Gone(f"exit status {found[2]}"), **{k: v for k, v in answers.items() if k != name}}

    def _accept(self, listener: Listener, ranks: int) -> dict[int, tuple[Connection, str, int]]:
        arrived: queue.SimpleQueue[Connection] = queue.SimpleQueue()

        def accept() -> None:
            with contextlib.suppress(OSError):  # the listener was closed
                while True:
                    arrived.put(listener.accept())

        threading.Thread(target=accept, name="ranks", daemon=True).start()
        found: dict[int, tuple[Connection, str, int]] = {}
        deadline = time.monotonic() + START_SECONDS
        while len(found) < ranks:
            with contextlib.suppress(queue.Empty):
                connection = arrived.get(timeout=0.1)
                rank, place, pid = receive(connection)
                found[rank] = (connection, place, pid)
                continue
            if self._process.poll() is not None or time.monotonic() > deadline:
                status = self._process.poll()
                raise WorkerLost(
                    "the training ranks did not start",
                    where=str(self.log),
                    expected=f"{ranks} ranks within {START_SECONDS:.0f} s",
                    got=f"{len(found)}"
                    + (f"; torchrun ended with status {status}" if status is not None else "")
                    + self._last_words(),
                    fix="its log says why",
                )
        return found

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-4000:]
        return ""


def command(ranks: int, nodes: int, host: str) -> list[str]:
    """torchrun's command line; on several nodes one torchrun a node, started by srun.

    Raises:
        WorkerLost: the nodes cannot hold equally many ranks.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    if nodes == 1:
        return [*torchrun, "--standalone", f"--nproc-per-node={ranks}", "-m", MODULE]
    if ranks % nodes:
        raise WorkerLost(
            "the ranks cannot be spread evenly", expected=f"a multiple of {nodes} nodes", got=f"{ranks} ranks"
        )
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:{free_port()}", f"--rdzv-id={secrets.token_hex(4)}"]
    spread = [f"--nnodes={nodes}", f"--nproc-per-node={ranks // nodes}"]
    return ["srun", f"--nodes={nodes}", "--ntasks-per-node=1", *torchrun, *spread, *meeting, "-m", MODULE]


def _is_rank(pid: int) -> bool:
    """Is the process still one of ours? Its number may have been given away."""
    try:
        return MODULE in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def _receive(connection: Connection) -> Any:
    try:
        return receive(connection)
    except (EOFError, OSError):
        return Gone("its connection ended: killed or crashed")
