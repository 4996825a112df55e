"""What `internalize doctor` runs on compute nodes, one task a node:
`python -m internalize.cluster.probe FOLDER ROLE INTERFACE SECONDS`.

Invariant: every answer is found out by doing it, between nodes where it matters: a file is written, fsynced and renamed
on one and read on the others, a lock is held on one and tried on the others, a port is opened on one and called by the
others. Each task prints one JSON line: check -> `ok`, or what went wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from internalize.cluster.node import address_of
from internalize.files import write_text
from internalize.fingerprint import Fingerprints

OK = "ok"
PATIENCE = 60.0
"""Seconds that a task waits for another."""
IMPORTS = {"cpu": "internalize, pydantic, zstandard", "gpu": "torch, megatron.core"}
"""What the jobs of a role must be able to import."""
GPUS = "print(torch.cuda.device_count() if torch.version.cuda else 'no CUDA build')"


def code() -> str:
    """Fingerprint of the code that trains: equal wherever the same package is installed."""
    return Fingerprints().of("internalize.arms.segment")


def wait_for(path: Path) -> str:
    """The text of a file, once it is there.

    Raises:
        TimeoutError: it does not come.
    """
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name}, written on another node, has not appeared for {PATIENCE:.0f} s")
        time.sleep(0.1)
    return path.read_text()


def files(folder: Path, rank: int, count: int) -> str:
    """A file of every node, renamed into place, is seen whole by every node."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"written by {rank}\n" * 4096
    write_text(folder / f"file-{rank}", text)
    for other in range(count):
        if wait_for(folder / f"file-{other}") != text.replace(f"by {rank}", f"by {other}"):
            return f"the file of task {other} is not whole"
    return OK


def locks(folder: Path, rank: int, count: int) -> str:
    """A lock that one node holds is refused to the others."""
    with (folder / "lock").open("a") as handle:
        if rank == 0:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_text(folder / "locked", "")
            for other in range(1, count):
                wait_for(folder / f"tried-{other}")
            return OK
        wait_for(folder / "locked")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return OK
        finally:
            write_text(folder / f"tried-{rank}", "")
        return "two nodes hold the same lock"


def ports(folder: Path, rank: int, count: int, interface: str) -> str:
    """Every node reaches a free port of the first."""
    if rank == 0:
        own = address_of(interface) if interface else socket.gethostbyname(socket.gethostname())
        with socket.create_server((own, 0)) as server:
            server.settimeout(PATIENCE)
            write_text(folder / "address", f"{own}:{server.getsockname()[1]}")
            for _ in range(1, count):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(b"here")
        return OK
    host, _, port = wait_for(folder / "address").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        return OK if connection.recv(4) == b"here" else f"{host}:{port} answers something else"


def environment(role: str) -> str:
    """What the role's jobs import can be imported, and a CUDA build sees the GPUs of the job."""
    program = f"import {IMPORTS[role]}; {GPUS if role == 'gpu' else 'pass'}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return "torch was built with CUDA but sees no GPU" if done.stdout.strip() == "0" else OK


def main() -> None:
    """Runs all checks of one task."""
    global PATIENCE
    folder, role, interface, patience = sys.argv[1:]
    PATIENCE = float(patience)
    rank, count = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    told: dict[str, str] = {"node": os.environ.get("SLURMD_NODENAME", socket.gethostname()), "code": code()}
    checks: dict[str, Callable[[], str]] = {
        "files": lambda: files(Path(folder), rank, count),
        "locks": lambda: locks(Path(folder), rank, count),
        "ports": lambda: ports(Path(folder), rank, count, interface),
    }
    if rank == 0:
        checks["environment"] = lambda: environment(role)
    for name, check in checks.items():
        if name in ("locks", "ports") and told["files"] != OK:  # they need a shared folder
            continue
        try:
            told[name] = check()
        except Exception as error:  # whatever it is, it is the answer
            told[name] = f"{type(error).__name__}: {error}"
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
