"""Only this user's jobs of this directory, under the executor's name, count as ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from control_fakes import UUID, FakeSlurm

from internalize.control import slurm
from internalize.errors import UserError

Line = Callable[..., str]
SEGMENT = "rule_segment_wildcards_arm_c_0_0004_0014"


def test_jobs_are_read_as_squeue_prints_them(fake_slurm: FakeSlurm, line: Line, work: Path) -> None:
    fake_slurm.queue([line(7, SEGMENT), line(8, "rule_evals_wildcards_sft_first-cc_12", state="PENDING")])
    segment, evals = slurm.live_jobs(work)
    assert (segment.id, segment.state, segment.used, segment.left) == ("7", "RUNNING", "1:05", "58:55")
    assert (segment.run, segment.steps) == (("arm_c", 0), range(4, 15))
    assert (evals.run, list(evals.steps), evals.reason) == (("sft_first-cc", 12), [], "(Resources)")
    assert [job.rule for job in (segment, evals)] == ["segment", "evals"]
    assert segment.what == "segment arm_c_0_0004_0014"


@pytest.mark.parametrize(
    ("comment", "run", "steps"),
    [
        ("rule_evals_wildcards_x_1_1000", ("x_1", 1000), range(0)),
        ("rule_convert_wildcards_sft_first-cc_2_0007", ("sft_first-cc", 2), range(0)),
        ("rule_segment_wildcards_x_1_0_0000_0001", ("x_1", 0), range(2)),
        ("rule_evals_base", None, range(0)),
        ("rule_rows_wildcards_x_0", None, range(0)),
        ("(null)", None, range(0)),
    ],
)
def test_jobs_of_an_arm(comment: str, run: tuple[str, int] | None, steps: range) -> None:
    job = slurm.SlurmJob("1", "", "RUNNING", "", "", "", comment)
    assert (job.run, job.steps) == (run, steps)


def test_other_peoples_jobs_are_not_ours(fake_slurm: FakeSlurm, line: Line, work: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "link"
    link.symlink_to(work)
    fake_slurm.queue(
        [
            line(1, "(null)", name="my_own_job"),
            line(2, SEGMENT, where=elsewhere),
            line(3, SEGMENT, state="COMPLETED"),
            line(4, SEGMENT, name=UUID),
            line(5, SEGMENT, name=f"other_{UUID}"),
            line(6, SEGMENT, where=link),
            "squeue: some warning",
        ]
    )
    assert [job.id for job in slurm.live_jobs(work)] == ["4", "5", "6"]
    assert [job.id for job in slurm.live_jobs(work, "repro")] == ["6"]


def test_a_queue_that_cannot_be_seen_is_an_error(fake_slurm: FakeSlurm, work: Path) -> None:
    fake_slurm.break_down()
    with pytest.raises(UserError, match="squeue failed") as caught:
        slurm.live_jobs(work)
    assert "configuration source" in caught.value.got


def test_exactly_the_jobs_are_cancelled(fake_slurm: FakeSlurm, line: Line, work: Path) -> None:
    fake_slurm.queue([line(1, SEGMENT), line(2, SEGMENT), line(3, "(null)", name="mine")])
    slurm.cancel(slurm.live_jobs(work)[:1])
    assert fake_slurm.cancelled() == ["1"]
    slurm.cancel([])
    assert fake_slurm.cancelled() == ["1"]


def test_a_run_that_submitted_leaves_a_trace(work: Path) -> None:
    log = work / ".snakemake" / "log" / "2026-11-30T000000.snakemake.log"
    log.parent.mkdir(parents=True)
    log.write_text("Building DAG of jobs...\n")
    assert not slurm.was_used(work)
    log.write_text(f"SLURM run ID: repro_{UUID}\n")
    assert slurm.was_used(work)
