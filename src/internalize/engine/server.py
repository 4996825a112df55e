"""Engine processes: one thread of one core each, every one with its own address.

Invariant: when `serve` returns, every address answers; when the launching process ends, however it ends, so
do the engines (they read a pipe that only it holds open).

The launcher binds the sockets and hands them down, so that no port is chosen twice and none is guessed.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import uvicorn

import internalize
from internalize.closing import Closing
from internalize.engine.folder import ModelFolder
from internalize.errors import UserError

READY_SECONDS = 120.0
STOP_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection: none is closed while a request is on its way."""


class Served(Closing):
    """Running engine processes; a context manager."""

    def __init__(self, urls: Sequence[str], processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.urls = tuple(urls)
        self.processes = tuple(processes)

    def check(self) -> None:
        """Raises UserError when a process has ended."""
        for url, process in zip(self.urls, self.processes, strict=True):
            if process.poll() is not None:
                raise UserError(
                    "an engine process has ended",
                    where=url,
                    got=f"exit status {process.returncode}",
                    fix="its last words stand above",
                )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Returns when all answer. Raises UserError when one has ended or is late."""
        deadline = time.monotonic() + seconds
        for url in self.urls:
            while not _healthy(url):
                self.check()
                if time.monotonic() > deadline:
                    raise UserError("an engine did not start in time", where=url, expected=f"{seconds:.0f} s")
                time.sleep(0.05)

    def close(self) -> None:
        """End them: politely, then not."""
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def serve(
    model: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    processes: int = 1,
    *,
    slots: int = 128,
    max_len: int | None = None,
) -> Served:
    """Start `processes` engines on `model` and wait until all answer.

    Args:
        port: of the first, the others follow; 0: free ones.
        slots: calls at once, and sessions whose cache is kept, of each.
        max_len: most tokens of a sequence; None: what the model was made for.

    Raises:
        UserError: no model there, a port is taken, or a process ended while starting.
    """
    if processes < 1:
        raise UserError("at least one engine process", where="processes", got=str(processes))
    ModelFolder(model).config()
    listeners: list[socket.socket] = []
    started: list[subprocess.Popen[bytes]] = []
    try:
        for i in range(processes):
            listeners.append(_listen(host, port and port + i))
        shown = f"[{host}]" if ":" in host else host
        urls = [f"http://{shown}:{s.getsockname()[1]}" for s in listeners]
        for listener in listeners:
            started.append(_spawn(model, listener, slots, max_len))
        served = Served(urls, started)
        served.wait_ready()
    except BaseException:
        Served([""] * len(started), started).close()
        raise
    finally:
        for listener in listeners:
            listener.close()  # ours; the child has its own
    return served


def main(model: Path, host: str = "127.0.0.1", port: int = 0, processes: int = 1) -> None:
    """`internalize serve`: print the addresses, one a line, and serve until SIGINT or SIGTERM. Raises
    UserError when an engine ends by itself."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with serve(model, host, port, processes) as served:
        for url in served.urls:
            print(url, flush=True)
        while not stop.wait(0.5):
            served.check()


# ---- the engine process ---
class _Server(uvicorn.Server):
    """Ends running calls before it waits for their connections: their clients get what was sampled so far."""

    def __init__(self, config: uvicorn.Config, abort_calls: Callable[[], object]) -> None:
        super().__init__(config)
        self._abort_calls = abort_calls

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._abort_calls()
        await super().shutdown(sockets)


def run_engine(model: Path, listener: socket.socket, slots: int, max_len: int | None) -> None:
    """Serve on `listener` until SIGTERM, SIGINT or the end of standard input."""
    from internalize.engine.app import create_app  # torch, which the launcher does not need
    from internalize.engine.scheduler import Scheduler

    folder = ModelFolder(model)
    scheduler = Scheduler(folder.engine(slots, max_len)).start()
    config = uvicorn.Config(
        create_app(scheduler, folder),
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(STOP_SECONDS) - 1,
    )
    server = _Server(config, lambda: scheduler.abort(None))

    def watch_parent() -> None:
        sys.stdin.buffer.read()  # ends when the launcher does
        server.should_exit = True

    threading.Thread(target=watch_parent, daemon=True).start()
    server.run(sockets=[listener])
    scheduler.stop()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise UserError("cannot listen", where=f"{host}:{port}", got=str(error), fix="take another port") from None


def _spawn(model: Path, listener: socket.socket, slots: int, max_len: int | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "internalize.engine.server", str(model.resolve())]
    command += ["--fd", str(listener.fileno()), "--slots", str(slots)]
    command += [] if max_len is None else ["--max-len", str(max_len)]
    source = str(Path(internalize.__file__).resolve().parents[1])
    path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH")) if p)
    # with several OpenMP threads a process, engines that share cores slow each other down severalfold
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
        env=os.environ | threads | {"PYTHONPATH": path},
    )


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=1.0, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _child(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="one engine process (started by `internalize serve`)")
    parser.add_argument("model", type=Path)
    parser.add_argument("--fd", type=int, required=True, help="an inherited listening socket")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--max-len", type=int)
    options = parser.parse_args(arguments)
    try:
        run_engine(options.model, socket.socket(fileno=options.fd), options.slots, options.max_len)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(_child(sys.argv[1:]))
