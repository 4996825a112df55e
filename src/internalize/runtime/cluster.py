"""The Ray cluster of a segment: on this machine, over the nodes of a Slurm job, or one that is there already.

Invariant: what was started here is stopped here and nothing else is; no file of the user's home is written. Access
needs a token that lives in the environment of these processes alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import internalize
from internalize.errors import UserError
from internalize.ports import free_port
from internalize.runtime.failures import WorkerLost

START_SECONDS = 120.0
LOCAL_STORE_BYTES = 100 << 20
"""Batches and completions go through Ray's object store; weights do not."""


class Cluster:
    """A connection to Ray; use `connect`."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], folder: Path | None) -> None:
        self._processes, self._folder = processes, folder

    def close(self) -> None:
        """Disconnects, and ends what was started for it."""
        import ray

        ray.shutdown()
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


_shared: Cluster | None = None


def shared(processes: int) -> None:
    """Connects this process to a cluster unless it is connected; see `connect`."""
    global _shared
    if _shared is None:
        _shared = connect(processes)


def shutdown() -> None:
    """Closes the cluster of this process, if there is one."""
    global _shared
    if _shared is not None:
        _shared.close()
        _shared = None


def connect(processes: int) -> Cluster:
    """A cluster with room for so many processes: the one that RAY_ADDRESS names, one over the nodes of this Slurm job,
    or a local one.

    Raises:
        UserError: Ray is not installed.
        WorkerLost: the cluster did not come up.
    """
    prepare_environment()
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "Ray is not installed", where="parallel.runtime: ray", fix="pip install 'internalize[cluster]'"
        ) from error
    _read_token_again()
    options: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
    address, nodes = os.environ.get("RAY_ADDRESS"), int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    if address:
        ray.init(
            address=address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
        )
        return Cluster([], None)
    folder = Path(tempfile.mkdtemp(prefix="iz-", dir="/tmp"))  # short: Ray's socket names must fit 107 characters
    if nodes > 1:
        started = start_nodes(nodes, folder)
        cluster = Cluster(started.processes, folder)
        try:
            ray.init(address=started.address, log_to_driver=False, _temp_dir=str(folder))
            _wait_for_nodes(nodes)
        except BaseException:
            cluster.close()
            raise
        return cluster
    cpus = max(processes, os.cpu_count() or 1)  # a process here is mostly waiting: more of them than cores is fine
    ray.init(num_cpus=cpus, object_store_memory=LOCAL_STORE_BYTES, _temp_dir=str(folder), **options)
    return Cluster([], folder)


class Started:
    """Ray's processes on the nodes of a job."""

    def __init__(self, address: str, processes: list[subprocess.Popen[bytes]]) -> None:
        self.address, self.processes = address, processes


def start_nodes(nodes: int, folder: Path) -> Started:
    """A head on this node, and by one srun a worker on each other node; all end with these processes."""
    import ray

    host = socket.gethostname()
    address = f"{ray.util.get_node_ip_address()}:{free_port()}"
    head, workers = commands(nodes, host, address, folder)
    return Started(address, [subprocess.Popen(head), subprocess.Popen(workers)])


def commands(nodes: int, host: str, address: str, folder: Path) -> tuple[list[str], list[str]]:
    """The command lines of the head and of the other nodes."""
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    ip, _, port = address.rpartition(":")
    head = [*ray, "--head", f"--node-ip-address={ip}", f"--port={port}", f"--temp-dir={folder}"]
    head.append("--include-dashboard=false")
    others = str(nodes - 1)
    srun = ["srun", f"--nodes={others}", f"--ntasks={others}", "--ntasks-per-node=1", f"--exclude={host}", "--overlap"]
    return head, [*srun, *ray, f"--address={address}"]


def prepare_environment() -> None:
    """What Ray and its workers read from the environment: no reports home, a token of our own, this package."""
    source = str(Path(internalize.__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH", "")
    if source not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (source, path) if part)
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_AUTH_MODE", "token"),
        ("RAY_AUTH_TOKEN", secrets.token_hex(32)),
        ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),
    ):
        os.environ.setdefault(name, value)


def _read_token_again() -> None:
    """Ray reads mode and token when it is imported, which another package may have done before us, and keeps them."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # compiled

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _wait_for_nodes(nodes: int) -> None:
    import ray

    deadline = time.monotonic() + START_SECONDS
    while (alive := sum(node["Alive"] for node in ray.nodes())) < nodes:
        if time.monotonic() > deadline:
            raise WorkerLost("not all nodes joined the Ray cluster", expected=f"{nodes}", got=f"{alive}")
        time.sleep(0.5)
