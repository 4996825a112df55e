"""A real Slurm cluster on one machine, in one folder: to try the Slurm profile, and to test it under faults.

Invariant: it starts only processes that it can name again by pid and start time or by a variable in their
environment, and ends only those; it needs no root and leaves nothing outside its folder.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from internalize.cluster.sandbox_conf import CLIENTS, SACCT, Ports, Shape, gres_conf, site_yaml, slurm_conf
from internalize.errors import UserError
from internalize.ports import free_ports
from internalize.processes import Process, end, with_environment

DAEMONS = ("munged", "slurmctld", "slurmd")
FOLDERS = ("bin", "log", "munge", "run", "spool", "state")
SYSTEM = os.pathsep.join(("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"))
MARK = "INTERNALIZE_SANDBOX"
"""Variable that every process of a sandbox carries: its folder."""
NODE_MARK = "INTERNALIZE_SANDBOX_NODE"
ATTEMPTS = 3
LONGEST_FOLDER = 80
"""Characters; the socket in it must fit into 107."""


def missing_programs() -> list[str]:
    """What must be installed before a sandbox can start; empty when all is there."""
    return [name for name in (*DAEMONS, "sbatch", "srun") if _program(name) is None]


class Sandbox:
    """A Slurm cluster below `folder`.

    Args:
        folder: its configuration, state, logs and sockets; made by `start`.
        shape: number and size of its nodes.
    """

    def __init__(self, folder: Path, shape: Shape | None = None) -> None:
        self.folder = folder.resolve()
        self.shape = shape or Shape()

    @property
    def bin(self) -> Path:
        """Client commands that know this sandbox whatever the environment says. They are needed because Snakemake's
        job step removes every `SLURM_*` variable, `SLURM_CONF` too, before it starts a job's shell."""
        return self.folder / "bin"

    @property
    def site(self) -> Path:
        """Its site file."""
        return self.folder / "site.yaml"

    def environment(self) -> dict[str, str]:
        """This process' environment with the sandbox's clients first."""
        return os.environ | {"PATH": os.pathsep.join([str(self.bin), os.environ.get("PATH", "")])}

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a client of this sandbox; returns what it printed.

        Raises:
            UserError: it failed, and `check` is set.
        """
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]], capture_output=True, text=True, check=False, timeout=120
        )
        if check and done.returncode != 0:
            raise UserError(f"{command[0]} failed", where=" ".join(command), got=(done.stderr or done.stdout).strip())
        return done.stdout

    # Start and stop

    def start(self, patience: float = 120.0) -> None:
        """Starts everything and waits until every node is idle (a second on a quiet machine). Tries again with other
        ports if a daemon does not live: what was free may have been taken meanwhile.

        Raises:
            UserError: Slurm is not installed, the folder's path is too long, or the nodes do not come up.
        """
        missing = missing_programs()
        if missing:
            raise UserError(
                "Slurm is not installed",
                got=f"no {', '.join(missing)}",
                fix="Debian and Ubuntu: apt-get install --no-install-recommends slurm-wlm munge",
            )
        if len(str(self.folder)) > LONGEST_FOLDER:
            expected = f"a path of at most {LONGEST_FOLDER} characters, for the socket in it"
            raise UserError("the folder's path is too long", where=str(self.folder), expected=expected)
        for left in reversed(range(ATTEMPTS)):
            self.stop()
            try:
                self._start_all(patience)
                return
            except UserError:
                if not left:
                    raise

    def _start_all(self, patience: float) -> None:
        self._write()
        self._start_munge()
        self.start_controller(fresh=True)
        for name in self.shape.names:
            self.start_node(name)

        def up() -> bool:
            ended = [name for name in ("slurmctld", *self.shape.names) if self._daemon(name) is None]
            if ended:
                raise UserError("daemons have ended", where=str(self.folder / "log"), got=", ".join(ended))
            return self.idle()

        self.wait(up, patience, "the nodes do not come up")

    def stop(self) -> None:
        """Ends its jobs, its daemons and what is left of both."""
        if (self.folder / "run").is_dir():
            if self._daemon("slurmctld") is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.run("scancel", "--user", getpass.getuser(), check=False)
            daemons = [found for path in (self.folder / "run").glob("*.pid") if (found := _read(path))]
            end([*daemons, *self._processes()])
            while left := self._processes():  # started while the others were ended
                end(left, patience=1.0)
            for path in (self.folder / "run").glob("*.pid"):
                path.unlink()

    def idle(self) -> bool:
        """Is every node up, with nothing running?"""
        states = self.node_states()
        return len(states) == self.shape.nodes and set(states.values()) == {"idle"}

    def node_states(self) -> dict[str, str]:
        """Node -> state, as sinfo names it (`idle`, `mixed`, `allocated`, `down*`, ...)."""
        lines = self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T", check=False).splitlines()
        return {words[0]: words[1] for line in lines if len(words := line.split()) == 2}

    def wait(self, condition: Callable[[], bool], patience: float, complaint: str) -> None:
        """Waits until `condition()` holds.

        Raises:
            UserError: it does not within `patience` seconds.
        """
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise UserError(complaint, where=str(self.folder / "log"), got=str(self.node_states()))
            time.sleep(0.1)

    # Faults

    def kill_node(self, name: str, *, processes: bool = True) -> None:
        """A node dies: its slurmd and, unless the node is only cut off, every process on it."""
        self._end_daemon(name)
        if processes:
            for process in self._processes(name):
                process.send(signal.SIGKILL)

    def start_node(self, name: str) -> None:
        """Starts the slurmd of a node."""
        self._spawn(name, ["slurmd", "-D", "-N", name, "-f", str(self._conf)], {NODE_MARK: name})

    def stop_controller(self) -> None:
        """The controller dies."""
        self._end_daemon("slurmctld")

    def start_controller(self, *, fresh: bool = False) -> None:
        """Starts the controller; it knows its jobs again unless `fresh`."""
        self._spawn("slurmctld", ["slurmctld", "-D", *(["-c"] if fresh else []), "-f", str(self._conf)], {})

    # Files and processes

    @property
    def _conf(self) -> Path:
        return self.folder / "slurm.conf"

    def _write(self) -> None:
        for name in FOLDERS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "munge").chmod(0o711)
        controller, *nodes = free_ports(self.shape.nodes + 1, "127.0.0.1")
        conf = slurm_conf(self.folder, self.shape, Ports(controller, nodes), getpass.getuser(), socket.gethostname())
        self._conf.write_text(conf)
        (self.folder / "gres.conf").write_text(gres_conf(self.shape))
        (self.folder / "plugstack.conf").write_text("")  # or Slurm reads the system's
        self.site.write_text(site_yaml(self.shape))
        for name in CLIENTS:
            real = _program(name)
            if real is not None:
                lines = ["#!/bin/sh", f"export SLURM_CONF={self._conf} {MARK}={self.folder}", f'exec {real} "$@"', ""]
                self._write_client(name, "\n".join(lines))
        self._write_client("sacct", SACCT.format(bin=self.bin))

    def _write_client(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        command = ["munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}"]
        command += [f"--{name}-file={folder / name}" for name in ("pid", "log", "seed")]
        self._spawn("munged", [*command, f"--socket={folder / 'socket'}"], {})
        self.wait((folder / "socket").exists, 20, "munged does not start")

    def _spawn(self, name: str, command: list[str], extra: dict[str, str]) -> None:
        program = _program(command[0])
        assert program is not None, command[0]
        environment = os.environ | {"SLURM_CONF": str(self._conf), MARK: str(self.folder)} | extra
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            started = subprocess.Popen(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
        process = Process.of(started.pid)
        if process is not None:
            self._pid_file(name).write_text(str(process))

    def _daemon(self, name: str) -> Process | None:
        return _read(self._pid_file(name))

    def _end_daemon(self, name: str) -> None:
        process = self._daemon(name)
        if process is not None:
            process.send(signal.SIGKILL)
            self.wait(lambda: not process.alive, 10, f"{name} does not end")
        self._pid_file(name).unlink(missing_ok=True)

    def _pid_file(self, name: str) -> Path:
        return self.folder / "run" / f"{name}.pid"

    def _processes(self, node: str | None = None) -> list[Process]:
        """Processes of the sandbox, or those on one of its nodes: job steps and all that jobs started."""
        mark = f"{MARK}={self.folder}"
        if node is None:
            return with_environment(mark)
        return [*with_environment(mark, f"{NODE_MARK}={node}"), *with_environment(mark, f"SLURMD_NODENAME={node}")]


def _program(name: str) -> str | None:
    return shutil.which(name, path=SYSTEM)


def _read(path: Path) -> Process | None:
    """The process that a pid file names, if it still runs."""
    try:
        process = Process.read(path.read_text())
    except (OSError, ValueError):
        return None
    return process if process.alive else None
