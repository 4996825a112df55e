"""The last failures, as long as they stand."""

from __future__ import annotations

import os
from pathlib import Path

from internalize.control.failures import last_failures

OUTPUT = "results/receipts/arms/x/seed0/steps0000-0001/step0001.json"
LOG = f"""[Mon Nov 30 09:27:30 2026]
Error in rule segment:
    message: SLURM-job '4711' failed, SLURM status is: 'TIMEOUT'
    jobid: 11
    input: results/receipts/base.json
    output: {OUTPUT}
    log: logs/x.log, logs/slurm/rule_segment/x/4711.log (check log file(s) for error details)
    shell:
        internalize segment --spec '{{}}'
        (command exited with non-zero exit code)
    external_jobid: 4711

Error in rule segment:
    jobid: 11
    output: {OUTPUT}
    log: logs/x.log (check log file(s) for error details)
    external_jobid: 4712

Exiting because a job execution failed.
"""


def write(work: Path, name: str, text: str, when: int) -> None:
    path = work / ".snakemake" / "log" / f"{name}.snakemake.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (when, when))


def test_the_newest_run_tells_each_job_once(work: Path) -> None:
    assert last_failures(work) == []
    write(work, "b", LOG, 1)
    (work / "logs").mkdir()
    (work / "logs" / "x.log").write_text(
        "x step 0: loss 1\nstopped: budget: no more\n  where:    there\n  fix:      pay\n"
    )
    (failure,) = last_failures(work)
    assert (failure.rule, failure.output, failure.log, failure.job_id) == ("segment", OUTPUT, "logs/x.log", "4712")
    assert failure.lines == ("stopped: budget: no more", "  where:    there", "  fix:      pay")
    write(work, "a", "all went well\n", 2)
    assert last_failures(work) == []


def test_a_receipt_that_came_after_all_is_no_failure(work: Path) -> None:
    write(work, "b", LOG, 1)
    (work / OUTPUT).parent.mkdir(parents=True)
    (work / OUTPUT).write_text("{}")
    assert last_failures(work) == []


def test_a_log_without_a_headline_shows_its_end(work: Path) -> None:
    write(work, "b", LOG, 1)
    (work / "logs").mkdir()
    (work / "logs" / "x.log").write_text("".join(f"line {n}\n" for n in range(9)))
    assert last_failures(work)[0].lines == ("line 6", "line 7", "line 8")
