"""Cancel and unlock touch nothing that is not this study's, and a lock goes only when nothing writes any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_fakes import UUID, FakeSlurm
from typer.testing import CliRunner

from internalize.cli import app
from internalize.control import stop
from internalize.control.drive import Driver
from internalize.control.processes import StudyProcess
from internalize.errors import UserError

Line = Callable[..., str]
SEGMENT = "rule_segment_wildcards_recite_0_0000_0001"
OTHER = "rule_segment_wildcards_none_0_0000_0001"


class Unlocks(Driver):
    """Counts instead of calling Snakemake."""

    def unlock(self) -> None:
        for path in stop.locked(Path()):
            path.unlink()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def locked(work: Path) -> Path:
    path = work / ".snakemake" / "locks" / "0.input.lock"
    path.parent.mkdir(parents=True)
    path.write_text("")
    log = work / ".snakemake" / "log" / "x.snakemake.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"SLURM run ID: repro_{UUID}\n")
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No waiting."""
    now = [0.0]
    monkeypatch.setattr(stop.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(stop.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + max(seconds, 0.1)))
    return


def unlock(folder: Path, said: list[str], seconds: float = 30, end_jobs: bool = False, use_slurm: bool = True) -> None:
    stop.unlock(folder, None, Unlocks(folder, {}), seconds, end_jobs, use_slurm, said.append)


def test_cancel_ends_the_slurm_jobs_of_this_directory(
    fake_slurm: FakeSlurm, line: Line, work: Path, tmp_path: Path, said: list[str]
) -> None:
    fake_slurm.queue([line(1, SEGMENT), line(2, OTHER, where=tmp_path), line(3, "(null)", name="mine")])
    left = stop.cancel(work, None, (None, None), 5, True, said.append)
    assert not left
    assert fake_slurm.cancelled() == ["1"]
    assert said == ["ended: slurm job 1: segment recite_0_0000_0001 (RUNNING)"]


def test_cancel_of_one_arm_leaves_the_others(fake_slurm: FakeSlurm, line: Line, work: Path, said: list[str]) -> None:
    convert, evals = "rule_convert_wildcards_recite_0_0001", "rule_evals_wildcards_recite_1"
    fake_slurm.queue([line(1, SEGMENT), line(2, OTHER), line(3, evals), line(4, convert), line(5, "rule_archive")])
    stop.cancel(work, None, ("recite", 0), 5, True, said.append)
    assert fake_slurm.cancelled() == ["1", "4"]


def test_the_commands_have_a_dry_run(fake_slurm: FakeSlurm, line: Line, work: Path, locked: Path) -> None:
    fake_slurm.queue([line(1, SEGMENT), line(2, OTHER)])
    runner = CliRunner()
    assert runner.invoke(app, ["cancel", "--prefix", "repro", "--dry-run"]).output.splitlines() == [
        "would end: slurm job 1: segment recite_0_0000_0001 (RUNNING)",
        "would end: slurm job 2: segment none_0_0000_0001 (RUNNING)",
    ]
    only = runner.invoke(app, ["cancel", "--prefix", "repro", "--arm", "none", "--dry-run"]).output
    assert only.splitlines() == ["would end: slurm job 2: segment none_0_0000_0001 (RUNNING)"]
    text = runner.invoke(app, ["unlock", "--prefix", "repro", "--dry-run"]).output
    assert "would unlock after these jobs have ended (1 locks)" in text
    assert fake_slurm.cancelled() == []
    assert locked.exists()
    assert isinstance(runner.invoke(app, ["cancel", "--seed", "1"]).exception, UserError)


def test_unlock_waits_for_the_jobs_of_the_killed_run(
    fake_slurm: FakeSlurm, line: Line, work: Path, locked: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm.queue([line(1, SEGMENT)])
    monkeypatch.setattr(stop.time, "sleep", lambda seconds: fake_slurm.queue([]))  # it ends while we wait
    unlock(work, said)
    assert said == [
        "waiting for 1 jobs of an earlier run: slurm job 1: segment recite_0_0000_0001 (RUNNING)",
        "unlocked (1 locks)",
    ]
    assert fake_slurm.cancelled() == []
    assert not locked.exists()


def test_unlock_refuses_while_a_job_lives(
    fake_slurm: FakeSlurm, line: Line, work: Path, locked: Path, said: list[str], quick: None
) -> None:
    fake_slurm.queue([line(1, SEGMENT)])
    with pytest.raises(UserError, match="still run") as caught:
        unlock(work, said)
    assert "slurm job 1" in caught.value.got
    assert locked.exists()
    unlock(work, said, end_jobs=True)
    assert fake_slurm.cancelled() == ["1"]
    assert not locked.exists()


def test_unlock_refuses_beside_a_running_snakemake(
    fake_slurm: FakeSlurm, work: Path, locked: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = StudyProcess(1, 0, ("snakemake",), True)
    monkeypatch.setattr(stop.processes, "ours", lambda folder: [driver])
    for end_jobs in (False, True):
        with pytest.raises(UserError, match="locks are in use"):
            unlock(work, said, end_jobs=end_jobs)
    assert locked.exists()


def test_unlock_does_not_guess_when_the_queue_cannot_be_seen(
    fake_slurm: FakeSlurm, work: Path, locked: Path, said: list[str]
) -> None:
    fake_slurm.break_down()
    with pytest.raises(UserError, match="squeue failed"):
        unlock(work, said)
    assert locked.exists()
    unlock(work, said, use_slurm=False)
    assert not locked.exists()


def test_unlock_where_slurm_was_used_needs_its_commands(
    no_slurm: None, work: Path, locked: Path, said: list[str]
) -> None:
    with pytest.raises(UserError, match="no `squeue` on this machine"):
        unlock(work, said)
    (work / ".snakemake" / "log" / "x.snakemake.log").write_text("a local run\n")
    unlock(work, said)
    assert said == ["unlocked (1 locks)"]


def test_nothing_to_unlock(fake_slurm: FakeSlurm, work: Path, said: list[str]) -> None:
    unlock(work, said)
    assert said == ["not locked"]
