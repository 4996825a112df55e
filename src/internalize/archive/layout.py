"""Where things lie in an archive, and what they are called.

Invariant: names depend on the study alone, never on the machine or the time; a path below the archive's root is
relative, POSIX, and safe to join.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

README = "README.md"
SUMS = "MANIFEST.sha256"
MANIFEST = "MANIFEST.json"
CRATE = "ro-crate-metadata.json"
READER = "tables.py"
REGISTRY = "registry.jsonl"
RECEIPTS = "state/receipts.jsonl"
ARCHIVE_RECEIPT = "state/archive-receipt.json"
CHECKPOINTS = "checkpoints/checkpoints.jsonl"
LOG = "state/log.jsonl"
BASE_RUN = "base"
MODELS = "models"
"""Folder beside the archive with one model repository a converted iteration."""

LINKED = re.compile(r"(?:rollout/\d+\.pt|replay_rollout/.+|shaping\.json)$")
"""Files of a step's payload that are archived as they are."""
CONVERT = re.compile(r"convert\.(?P<arm>[^.]+)\.(?P<seed>\d+)\.step(?P<step>\d+)$")
"""Input label of a converted iteration."""

MEDIA = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".txt": "text/plain",
    ".py": "text/x-python",
    ".sha256": "text/plain",
    ".yaml": "application/yaml",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".gz": "application/gzip",
    ".zst": "application/zstd",
    ".pt": "application/x-pytorch",
    ".safetensors": "application/octet-stream",
}


class Run(NamedTuple):
    """A run of an arm."""

    arm: str
    seed: int

    @property
    def name(self) -> str:
        """Its folder below `runs/`."""
        return f"{self.arm}-seed{self.seed}"


def harvest_run(name: str) -> str:
    """The run of a harvest."""
    return f"harvest-{name}"


def media_type(path: str) -> str:
    """Media type by the last suffix."""
    suffix = path[path.rfind(".") :] if "." in path.rpartition("/")[2] else ""
    return MEDIA.get(suffix, "application/octet-stream")


def linked_name(path: str) -> str:
    """A linked payload file's path below its run: `rollout/3.pt` is `debug_rollout/3.pt`, as slime calls it."""
    return f"debug_{path}" if path.startswith("rollout/") else path


def model_name(prefix: str, run: str, step: int, frozen_adam: bool) -> str:
    """Repository of a converted iteration, without its owner."""
    return f"{prefix}-{run}-iter{step}" + ("-frozen-adam" if frozen_adam else "")


def offline_run(study: str, run: str) -> tuple[str, str]:
    """Folder and id of a run's W&B mirror: the date in the name, which the format wants, is the epoch."""
    digest = hashlib.sha256(f"{study}/{run}".encode()).hexdigest()[:8]
    return f"offline-run-19700101_000000-{digest}", digest
