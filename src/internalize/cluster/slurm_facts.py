"""What Slurm says about a cluster: version, configuration, partitions, nodes, accounts."""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from internalize.cluster.allocation import client

GPU = re.compile(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d+)")


@dataclass(frozen=True)
class Partition:
    """One partition."""

    name: str
    default: bool
    state: str
    minutes: int | None
    """Longest job; None: no limit."""

    @property
    def up(self) -> bool:
        """Does it take and run jobs?"""
        return self.state == "up"


@dataclass(frozen=True)
class Node:
    """One node."""

    name: str
    cpus: int
    memory_mb: int
    gpus: dict[str, int]
    """Type -> count; a type that is not named is `gpu`."""


def version() -> tuple[int, ...]:
    """Slurm's version, such as `(22, 5, 8)`."""
    return tuple(int(part) for part in re.findall(r"\d+", client("sinfo", "--version"))[:3])


def controllers_down() -> str:
    """What `scontrol ping` says when no controller is up; empty when one is."""
    said = client("scontrol", "ping")
    return "" if re.search(r"\bis UP\b", said) else said.strip().splitlines()[0]


def configuration() -> dict[str, str]:
    """slurm.conf as the controller holds it."""
    lines = (line.partition("=") for line in client("scontrol", "show", "config").splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in lines}


def partitions() -> dict[str, Partition]:
    """The partitions that this user sees, by name."""
    found = {}
    for line in client("sinfo", "-h", "-o", "%P|%a|%l").splitlines():
        name, state, limit = line.split("|")[:3]
        found[name.rstrip("*")] = Partition(name.rstrip("*"), name.endswith("*"), state, _minutes(limit))
    return found


def nodes(partition: str) -> list[Node]:
    """The nodes of a partition."""
    found = []
    for line in client("sinfo", "-h", "-N", "-p", partition, "-o", "%N|%c|%m|%G").splitlines():
        name, cpus, memory, gres = line.split("|")[:4]
        gpus = {kind or "gpu": int(count) for kind, count in GPU.findall(gres)}
        found.append(Node(name, int(cpus.rstrip("+")), int(memory.rstrip("+")), gpus))
    return found


def accounts() -> list[str]:
    """The accounts that this user may charge."""
    words = ["sacctmgr", "-n", "-P", "show", "associations", f"user={getpass.getuser()}", "format=account"]
    return sorted(set(client(*words).split()))


def lustre_quota_gb(folder: Path) -> float | None:
    """GB that this user may still write on a Lustre file system; None where there is no Lustre or no limit."""
    if shutil.which("lfs") is None:
        return None
    words = ["lfs", "quota", "-q", "-u", getpass.getuser(), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    fields = done.stdout.split()
    if done.returncode != 0 or len(fields) < 4:
        return None
    used, soft, hard = (int(field.rstrip("*")) for field in fields[1:4])  # kB; a star marks what is over the limit
    limit = hard or soft
    return (limit - used) / 1e6 if limit else None


def _minutes(limit: str) -> int | None:
    """`1-00:00:00`, `30:00` or `infinite` as minutes."""
    if not limit[0].isdigit():
        return None
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes = (parts[0], parts[1]) if len(parts) == 3 else (0, parts[0])
    return int(days or 0) * 1440 + hours * 60 + minutes
