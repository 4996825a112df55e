"""What the launcher starts on each node of a job: `python -m internalize.cluster.node head|worker ...`.

Invariant: everything started here runs in one process group below this process and ends with it: on SIGTERM, when the
parent dies, when the file `FOLDER/stop` appears, and when the group's first process ends.

The head starts Ray's head process, waits until every node has joined, and only then says so in `FOLDER/ready`; the
others learn its address from `FOLDER/head`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from internalize.files import write_text
from internalize.ports import free_port
from internalize.processes import die_with_parent

HEAD = "head"
READY = "ready"
STOP = "stop"
"""The file whose appearance ends the nodes in good order: `srun` passes SIGTERM on as SIGKILL."""
SIOCGIFADDR = 0x8915
GRACE = 5.0
LONGEST_SCRATCH = 40
"""Characters of the folder that Ray puts its sockets into; their paths end within 107."""


def address_of(interface: str) -> str:
    """IPv4 address of a network interface (Linux).

    Raises:
        OSError: there is no such interface, or it has no address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        packed = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, packed)[20:24])


def ray_command(own: str, head: str, cpus: int, gpus: int, scratch: str, *, is_head: bool) -> list[str]:
    """How Ray is started on a node, in the foreground. Every port but the head's is left to Ray, so that several nodes
    of a sandbox fit on one machine."""
    ray = str(Path(sys.executable).with_name("ray"))
    place = ["--head", f"--port={head.rpartition(':')[2]}", "--include-dashboard=false"]
    return [
        ray,
        "start",
        "--block",
        *(place if is_head else [f"--address={head}"]),
        f"--node-ip-address={own}",
        f"--temp-dir={scratch}",
        f"--num-cpus={cpus}",
        f"--num-gpus={gpus}",
        "--dashboard-agent-listen-port=0",
        "--disable-usage-stats",
    ]


class Group:
    """A child and all that it starts, as one process group."""

    def __init__(self, command: list[str], environment: dict[str, str], *, quiet: bool = False) -> None:
        out = subprocess.DEVNULL if quiet else None
        self.child = subprocess.Popen(
            command,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            preexec_fn=_die_with_us,
        )

    def wait(self, patience: float) -> None:
        """Waits a while for the end of its first process."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(patience)

    def end(self) -> None:
        """SIGTERM to the group, SIGKILL to what is left of it after a while."""
        for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline and _group_lives(self.child):
                time.sleep(0.05)


def wait_for(path: Path, patience: float) -> str:
    """The text of a file that another node writes.

    Raises:
        TimeoutError: it does not come.
    """
    deadline = time.monotonic() + patience
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has not appeared for {patience:.0f} s")
        time.sleep(0.1)
    return path.read_text()


def listening(address: str, group: Group, patience: float) -> None:
    """Waits until the group listens at `address`.

    Raises:
        TimeoutError: it does not.
        ChildProcessError: its first process has ended.
    """
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + patience
    while True:
        if group.child.poll() is not None:
            raise ChildProcessError(f"ray ended with status {group.child.returncode}")
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing listens at {address} after {patience:.0f} s")
        time.sleep(0.2)


def all_nodes(address: str, count: int, patience: float) -> None:
    """Waits until `count` nodes have joined the cluster at `address`.

    Raises:
        TimeoutError: fewer have.
    """
    import ray

    deadline = time.monotonic() + patience
    ray.init(address=address, log_to_driver=False, logging_level=40)
    try:
        while (alive := sum(node["Alive"] for node in ray.nodes())) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{alive} of {count} nodes have joined within {patience:.0f} s")
            time.sleep(0.2)
    finally:
        ray.shutdown()


def run(role: str, folder: Path, own: str, count: int, cpus: int, gpus: int, scratch: str, patience: float) -> int:
    """Runs one node until it is told to end; returns the exit status."""
    environment = dict(os.environ)
    if role == HEAD:
        address = f"{own}:{free_port(own)}"
        group = Group(ray_command(own, address, cpus, gpus, scratch, is_head=True), environment)
    else:
        address = wait_for(folder / HEAD, patience)
        group = Group(ray_command(own, address, cpus, gpus, scratch, is_head=False), environment)
    try:
        if role == HEAD:
            listening(address, group, patience)
            write_text(folder / HEAD, address)
            all_nodes(address, count, patience)
            write_text(folder / READY, address)
        while (status := group.child.poll()) is None and not (folder / STOP).exists():
            time.sleep(0.2)
        return status or 0
    except (ChildProcessError, TimeoutError, ConnectionError) as error:
        print(f"{socket.gethostname()}: {error}", file=sys.stderr)
        return 1
    finally:
        group.end()


def _die_with_us() -> None:
    die_with_parent(signal.SIGKILL)  # were this process killed itself, nobody else would end the child


def _group_lives(child: subprocess.Popen[bytes]) -> bool:
    child.poll()  # reaps it, else its zombie keeps the group alive
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the cleaning up short
    raise SystemExit(128 + number)


def main() -> None:
    """Reads the command line of a node."""
    parser = argparse.ArgumentParser(description="one node of a Ray cluster inside a Slurm job")
    parser.add_argument("--head", required=True, help="name of the head node")
    parser.add_argument("--folder", type=Path, required=True, help="folder that all nodes share")
    parser.add_argument("--addresses", required=True, help="NAME=ADDRESS,... of all nodes")
    parser.add_argument("--interface", default="")
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--cpus", type=int, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--patience", type=float, required=True)
    asked = parser.parse_args()
    die_with_parent()
    signal.signal(signal.SIGTERM, _stop)
    name = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    addresses = dict(entry.split("=", 1) for entry in asked.addresses.split(","))
    own = address_of(asked.interface) if asked.interface else socket.gethostbyname(addresses[name])
    parent = Path(os.path.expandvars(asked.scratch))
    if len(str(parent)) > LONGEST_SCRATCH:
        sys.exit(f"{name}: the scratch folder {parent} is longer than {LONGEST_SCRATCH} characters, too long for Ray")
    parent.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="ray-", dir=parent)
    role = HEAD if name == asked.head else "worker"
    try:
        status = run(role, asked.folder, own, len(addresses), asked.cpus, asked.gpus, scratch, asked.patience)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
