"""Fake `squeue` and `scancel` that speak as Slurm 22.05 does, on PATH."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

UUID = "3f1c6a7e-1111-2222-3333-444455556666"

SQUEUE = """#!/bin/sh
# as Slurm 22.05: one line a job, fields as asked for
[ "$1 $2 $3" = "--me --noheader --format" ] || { echo "squeue: unrecognized option" >&2; exit 1; }
[ "$4" = "%i|%j|%T|%M|%L|%Z|%R|%k" ] || exit 1
cat "$FAKE_SLURM/queue"
"""
SCANCEL = """#!/bin/sh
echo "$@" >> "$FAKE_SLURM/cancelled"
cd "$FAKE_SLURM"
for id in "$@"; do grep -v "^$id|" queue > left; mv left queue; done
"""
BROKEN = """#!/bin/sh
echo "squeue: error: fetch_config: DNS SRV lookup failed" >&2
echo "squeue: fatal: Could not establish a configuration source" >&2
exit 1
"""


class FakeSlurm:
    """A queue in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def queue(self, lines: Iterable[str]) -> None:
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in lines))

    def cancelled(self) -> list[str]:
        path = self.folder / "cancelled"
        return path.read_text().split() if path.exists() else []

    def break_down(self) -> None:
        (self.folder / "squeue").write_text(BROKEN)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def fake_slurm(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Slurm's commands."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("squeue", SQUEUE), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    slurm = FakeSlurm(folder)
    slurm.queue([])
    return slurm


@pytest.fixture
def no_slurm(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Slurm's commands."""
    from internalize.control import slurm

    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)


@pytest.fixture
def line(work: Path) -> Callable[..., str]:
    """A line of `squeue` for a job of this working directory."""

    def make(
        number: int, comment: str, state: str = "RUNNING", name: str = f"repro_{UUID}", where: Path | None = None
    ) -> str:
        reason = "node1" if state == "RUNNING" else "(Resources)"
        return f"{number}|{name}|{state}|1:05|58:55|{where or work}|{reason}|{comment}"

    return make
