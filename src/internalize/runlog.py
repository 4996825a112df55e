"""The log of decisions: what was launched, computed, stopped, superseded or set aside, by whom and when.

Invariant: events are only ever added. Each process writes a file of its own below `<store>/log/`, so that jobs on many
nodes never write one file; the log of a store is all of them in the order of their times. It tells what happened and
decides nothing: no stage reads it, and losing it loses no result.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = "log"
JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")


def record(store: Path, event: str, **details: Any) -> None:
    """Adds an event to the log of a store; a log that cannot be written is no reason to stop a job.

    Args:
        store: root of the store.
        event: one word or two: `launched`, `computed`, `stopped`, `superseded`, `set aside`.
        details: JSON values; a value of None is left out.
    """
    jobs = {name.lower(): os.environ[name] for name in JOB_VARIABLES if name in os.environ}
    told = {key: value for key, value in details.items() if value is not None}
    row = {"time": now(), "event": event, **jobs, **told}
    path = store / FOLDER / f"{platform.node()}-{os.getpid()}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as handle:
            handle.write(json.dumps(row, ensure_ascii=True) + "\n")
    except OSError:
        return


def now() -> str:
    """The time in UTC with microseconds (readers of tables rewrite times without a fraction)."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def events(store: Path) -> Iterator[dict[str, Any]]:
    """The events of a store, oldest first; a line that a killed process left half written is passed over."""
    found = []
    for path in sorted((store / FOLDER).glob("*.jsonl")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("time"), str) and isinstance(row.get("event"), str):
                found.append(row)
    yield from sorted(found, key=lambda row: str(row["time"]))


def git_state(repository: Path) -> dict[str, Any]:
    """Commit of the code and whether it was changed; empty where it is no git checkout."""

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return {}
    return {"git_commit": commit, "git_changed": bool(ask("status", "--porcelain", "--untracked-files=no"))}
