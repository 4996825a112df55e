"""The board: each step in its phase and state, jobs, errors, time left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from begun import SETTINGS
from control_fakes import UUID, FakeSlurm
from rich.console import Console
from typer.testing import CliRunner

from internalize.budget import mark_path, state_of
from internalize.cli import app
from internalize.control import status
from internalize.control.board import SIGNS, render
from internalize.control.processes import StudyProcess
from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import RECEIPTS, Plan

Line = Callable[..., str]


def text(board: status.Board) -> str:
    console = Console(width=140, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(render(board))
    return captured.get()


def rows(board: status.Board) -> dict[tuple[str, int], str]:
    return {(row.arm, row.seed): "".join(SIGNS[state] for _, state in row.steps) for row in board.rows}


def test_what_is_done_and_what_waits(fake_slurm: FakeSlurm, plan: Plan, store: Store, work: Path) -> None:
    board = status.look(plan, store, work)
    assert rows(board) == {("recite", 0): "■■····", ("none", 0): "■■■", ("none", 1): "···"}
    assert [phase for phase, _ in board.rows[-1].steps] == ["sft", "rl", "rl", "rl", "rl", "rl"]
    assert board.stages["gate"] == (1, 1)
    assert not board.live
    done, waiting = board.rows[0], board.rows[1]
    assert (done.evals, done.left_s) == ("done", 0)
    assert waiting.left_s > 0
    assert board.left_s >= waiting.left_s
    assert "no snakemake runs here" in text(board)


def test_a_long_arm_is_folded(fake_slurm: FakeSlurm, repository: Path, work: Path) -> None:
    study = load_study(repository / "config/mini.yaml", arms="none", set=["arms.none.steps=100"])
    board = status.look(Plan(study, repository), Store(Path("store")), work)
    lines = [line for line in text(board).splitlines() if "····" in line]
    assert [line.count("·") for line in lines] == [40, 40, 20]
    assert "0/100" in lines[0]


def test_slurm_jobs_are_seen_step_by_step(
    fake_slurm: FakeSlurm, line: Line, plan: Plan, store: Store, work: Path
) -> None:
    fake_slurm.queue(
        [
            line(41, "rule_segment_wildcards_recite_0_0000_0005"),
            line(42, "rule_segment_wildcards_none_1_0000_0002", state="PENDING"),
            line(43, "rule_gate"),
        ]
    )
    board = status.look(plan, store, work)
    assert rows(board) == {("recite", 0): "■■▶···", ("none", 0): "■■■", ("none", 1): "◌◌◌"}
    assert {row.arm: row.jobs for row in board.rows if row.jobs} == {"recite": ["41"], "none": ["42"]}
    assert board.live
    told = text(board)
    assert "slurm 41 RUNNING segment recite_0_0000_0005: 1:05 used, 58:55 left" in told
    assert "slurm 42 PENDING segment none_1_0000_0002: (Resources)" in told


def test_local_jobs_are_seen(
    fake_slurm: FakeSlurm, plan: Plan, store: Store, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = f"{RECEIPTS}/arms/none/seed1/steps0000-0002/step0002.json"
    converted = f"{RECEIPTS}/convert/none/seed1/step0000.json"
    found = [
        StudyProcess(7, 0, ("snakemake",), True),
        StudyProcess(8, 0, ("internalize", "segment", "--output", output), False),
        StudyProcess(9, 0, ("internalize", "stage", "evals", "--output", f"{RECEIPTS}/evals/recite/seed0.json"), False),
        StudyProcess(10, 0, ("internalize", "stage", "convert", "--output", converted), False),
    ]
    monkeypatch.setattr(status.processes, "ours", lambda folder: found)
    board = status.look(plan, store, work)
    assert rows(board)["none", 1] == "▶··"
    by_arm = {(row.arm, row.seed): row for row in board.rows}
    assert by_arm["none", 1].jobs == ["pid 8", "pid 10"]
    assert by_arm["none", 1].evals == "waiting", "a conversion is no eval"
    assert by_arm["recite", 0].evals == "running"
    assert "snakemake runs (pid 7)" in text(board)


def test_a_failure_is_shown_with_its_log(fake_slurm: FakeSlurm, plan: Plan, store: Store, work: Path) -> None:
    output = f"{RECEIPTS}/arms/recite/seed0/steps0000-0005/step0005.json"
    log = work / ".snakemake" / "log" / "x.snakemake.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        f"Error in rule segment:\n    jobid: 3\n    output: {output}\n    log: logs/r.log (check log file(s))\n\n"
    )
    (work / "logs").mkdir()
    (work / "logs" / "r.log").write_text("gate failed: too few\n  where:    here\n")
    board = status.look(plan, store, work)
    assert rows(board)["recite", 0] == "■■!···"
    assert "failed: segment, log logs/r.log" in text(board)
    assert "gate failed: too few" in text(board)


def test_a_stop_for_the_budget_is_told(
    fake_slurm: FakeSlurm, plan: Plan, store: Store, work: Path, repository: Path
) -> None:
    last = sorted(work.glob(f"{RECEIPTS}/arms/recite/seed0/*/step0001.json"))[0]
    receipt = json.loads(last.read_text())
    mark = {"status": "stopped: budget", "step": 1, "limit": "node_hours", "value": 5.0}
    mark["state"] = state_of(receipt["spec"], receipt["code"])
    mark_path("recite", 0).parent.mkdir(parents=True)
    mark_path("recite", 0).write_text(json.dumps(mark))
    study = load_study(repository / "config/mini.yaml", arms="none recite", set=[*SETTINGS, "budget.node_hours=5.0"])
    board = status.look(Plan(study, repository), store, work)
    assert [row.note for row in board.rows if row.arm == "recite"] == ["stopped: budget, after step 1"]
    assert "stopped: budget, after step 1" in text(board)


def test_a_queue_that_cannot_be_seen_is_said(fake_slurm: FakeSlurm, plan: Plan, store: Store, work: Path) -> None:
    fake_slurm.break_down()
    assert status.look(plan, store, work).warning == "", "no run here has used Slurm"
    log = work / ".snakemake" / "log" / "x.snakemake.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"SLURM run ID: repro_{UUID}\n")
    assert "the queue cannot be seen" in status.look(plan, store, work).warning


def test_the_command_ends_when_nothing_runs(fake_slurm: FakeSlurm, plan: Plan, work: Path, repository: Path) -> None:
    words = ["status", "--study", str(repository / "config/mini.yaml")]
    runner = CliRunner()
    assert "arm_c" in runner.invoke(app, words).output
    assert "arm_c" in runner.invoke(app, [*words, "--watch", "--every", "0.5"]).output
    told = runner.invoke(app, [*words, "--dry-run"]).output
    assert "calls: squeue --me --noheader --format %i|%j|%T|%M|%L|%Z|%R|%k" in told
    assert not (work / "store").exists()
