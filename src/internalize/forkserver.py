"""The fork server of a run on this machine: a process that has imported torch and Megatron, and forks a process a job.

Invariant: a job that the server forks and one that runs by itself compute the same and end with the same status. The
server keeps no module of this package, so a job runs the code that lies on disk when it starts. When the run ends,
however it ends, the server ends, and what it forked with it.

Importing costs a job 1.4 (torch) to 2.5 CPU s (Megatron too), which short studies pay some hundred times over.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from internalize.processes import die_with_parent

ADDRESS = "INTERNALIZE_FORKSERVER"
"""Variable with the path of the server's socket."""
PRELOADED = ("internalize.train.mcore", "pydantic", "typer")
REFUSED = "refused"
PARENT_SECONDS = 1.0


@dataclass(frozen=True)
class _Job:
    """A forked process and the client that waits for it."""

    pid: int
    handle: int
    link: socket.socket


def ask(arguments: list[str]) -> int | None:
    """Lets the server run a command of `internalize` as this process would, and waits for it.

    Returns:
        Its exit status; None when there is no server for this process.
    """
    address = os.environ.get(ADDRESS)
    if address is None:
        return None
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(address)
        except OSError:
            return None
        wish = {
            "arguments": arguments,
            "folder": str(Path.cwd()),
            "environment": dict(os.environ),
            "python": sys.executable,
        }
        socket.send_fds(link, [b"+"], [1, 2])
        link.sendall(json.dumps(wish).encode() + b"\n")
        reply = link.makefile().readline().strip()
    if not reply:
        sys.exit("the fork server was lost")
    return None if reply == REFUSED else int(reply)


def start() -> None:
    """Starts a server for the jobs of this process; it ends with this process."""
    if not hasattr(os, "pidfd_open"):  # not Linux
        return
    folder = tempfile.mkdtemp(prefix="iz-")  # short: a socket's path must fit 107 characters
    os.environ[ADDRESS] = str(Path(folder) / "jobs")
    command = [sys.executable, "-P", "-m", __name__, os.environ[ADDRESS], str(os.getpid())]
    atexit.register(_stop, subprocess.Popen(command, stdin=subprocess.DEVNULL), folder)


def serve(address: Path, parent: int) -> list[str] | None:
    """Forks a process a wish for as long as this one is a child of `parent`.

    Returns:
        In a forked process the command that it has to run, everything else set up; None in the server, at its end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run's terminal sends it to all; the run decides
    jobs = set[_Job]()
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(str(address))
        listener.listen(64)  # jobs that come while it imports wait for it
        _preload()
        selector.register(listener, selectors.EVENT_READ)
        while os.getppid() == parent:
            for key, _ in selector.select(PARENT_SECONDS):
                if key.fileobj is listener:
                    arguments = _fork(listener, selector, jobs)
                    if arguments is not None:
                        return arguments
                elif key.fileobj is key.data.link:  # the client is gone, and sends nothing else
                    selector.unregister(key.fileobj)
                    signal.pidfd_send_signal(key.data.handle, signal.SIGTERM)
                else:
                    _ended(key.data, selector)
                    jobs.remove(key.data)
    return None


def _fork(listener: socket.socket, selector: selectors.BaseSelector, jobs: set[_Job]) -> list[str] | None:
    link, _ = listener.accept()
    _, streams, _, _ = socket.recv_fds(link, 1, 2)
    wish = json.loads(link.makefile().readline() or "{}")
    if wish.get("python") != sys.executable:  # a job in an environment or container of its own
        _reply(link, REFUSED)
        _close(streams)
        return None
    server, pid = os.getpid(), os.fork()
    if pid == 0:
        selector.close()
        _close([listener.detach(), link.detach(), *(fd for job in jobs for fd in (job.handle, job.link.detach()))])
        die_with_parent(parent=server)
        _become(wish["folder"], wish["environment"], streams)
        return list(wish["arguments"])
    _close(streams)
    job = _Job(pid, os.pidfd_open(pid), link)
    jobs.add(job)
    selector.register(job.handle, selectors.EVENT_READ, job)
    selector.register(job.link, selectors.EVENT_READ, job)
    return None


def _become(folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """Makes a forked process what the client would be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    del os.environ[ADDRESS]
    for stream, target in zip(streams, (1, 2), strict=True):
        os.dup2(stream, target)
    _close(streams)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # as long as the process
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    gc.enable()


def _ended(job: _Job, selector: selectors.BaseSelector) -> None:
    _, status = os.waitpid(job.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    selector.unregister(job.handle)
    os.close(job.handle)
    with contextlib.suppress(KeyError):  # its client was gone before it
        selector.unregister(job.link)
    _reply(job.link, str(code if code >= 0 else 128 - code))


def _reply(link: socket.socket, text: str) -> None:
    with link, contextlib.suppress(OSError):
        link.sendall(f"{text}\n".encode())


def _preload() -> None:
    """Imports what jobs import, as far as it is not of this package."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asks for GPUs without opening them, which no fork survives
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.startswith("internalize.")]:
        del sys.modules[name]
    gc.freeze()


def _stop(server: subprocess.Popen[bytes], folder: str) -> None:
    server.terminate()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    """`python -m internalize.forkserver SOCKET PARENT`, started by `start`."""
    address = Path(sys.argv[1])
    arguments = serve(address, int(sys.argv[2]))
    if arguments is None:  # the run was killed
        shutil.rmtree(address.parent, ignore_errors=True)
        return
    from internalize.cli import main as run

    sys.argv = ["internalize", *arguments]
    run()


if __name__ == "__main__":
    main()
