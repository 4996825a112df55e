"""Bars: what they count, what stands beside them, how they fit a terminal, and `internalize watch`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from begun import SETTINGS
from control_fakes import FakeSlurm
from rich.console import Console
from terminal import on_terminal, piped
from typer.testing import CliRunner

from internalize.cli import app
from internalize.control import status
from internalize.control.bars import Bars
from internalize.control.beats import beats
from internalize.control.processes import StudyProcess
from internalize.control.progress import Bar, Progress, line, progress
from internalize.costs.jobs import jobs_of
from internalize.store import Store
from internalize.workflow import RECEIPTS, Plan


def beat(store: Store, name: str, age: float, **told: object) -> None:
    folder = store.root / "running" / f"step-{name}"
    folder.mkdir(parents=True)
    said = {"time": time.time() - age, "step": name, "host": "node7", "phase": "train", "phase_s": 5.0, "alarms": []}
    (folder / "heartbeat.json").write_text(json.dumps({**said, **told}))


def drawn(shown: Progress, height: int = 30) -> list[str]:
    console = Console(width=120, height=height, force_terminal=False)
    with console.capture() as captured:
        console.print(Bars(shown))
    return captured.get().splitlines()


def test_bars_count_what_the_store_holds(fake_slurm: FakeSlurm, plan: Plan, store: Store, work: Path) -> None:
    board = status.look(plan, store, work)
    shown = progress(board)
    assert {bar.name: (bar.done, bar.of, bar.state) for bar in shown.arms} == {
        "none": (3, 6, "waiting"),
        "recite": (2, 6, "waiting"),
    }
    jobs = len(jobs_of(plan))
    assert (shown.whole.of, shown.whole.done) == (jobs, jobs - 8), (
        "two runs with their evals; report, archive, page, pictures"
    )
    assert line(shown) == f"mini: {shown.whole.done}/{shown.whole.of} jobs done"
    assert board.eta_s == max(board.left_s, board.node_s) > 0


def test_running_steps_say_what_they_do(
    fake_slurm: FakeSlurm, plan: Plan, store: Store, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = f"{RECEIPTS}/arms/none/seed1/steps0000-0002/step0002.json"
    found = [
        StudyProcess(8, 0, ("internalize", "segment", "--output", output), False),
        StudyProcess(9, 0, ("internalize", "stage", "harvest", "--output", f"{RECEIPTS}/harvest/own.json"), False),
    ]
    monkeypatch.setattr(status.processes, "ours", lambda folder: found)
    beat(store, "none-seed1-step0000", 2.0)
    shown = progress(status.look(plan, store, work))
    assert shown.arms[0].state == "running"
    assert shown.arms[0].doing == ["seed 1 step 0: train 7 s"]
    assert shown.others == ["stage harvest/own"]
    text = "\n".join(drawn(shown))
    assert "3/6 steps" in text
    assert "seed 1 step 0: train 7 s" in text
    assert "runs: stage harvest/own" in text


def test_a_step_without_heartbeats_is_said_to_be_silent(store: Store) -> None:
    beat(store, "arm-seed-x-seed3-step0012", 90.0)
    beat(store, "none-seed1-step0000", 1.0, alarms=["host memory grows"])
    beat(store, "left-seed0-step0000", 7200.0)
    assert [str(one) for one in beats(store.root / "running")] == [
        "seed 3 step 12: no heartbeat for 90 s (on node7)",
        "seed 1 step 0: train 6 s; host memory grows",
    ]


def test_many_arms_fit_the_terminal() -> None:
    def bar(name: str, state: str) -> Bar:
        return Bar(name, 1, 2, "steps", "", state)

    arms = [bar(f"arm{n:02d}", "done" if n % 2 else "waiting") for n in range(40)]
    shown = Progress("big", bar("all jobs", "running"), arms, ["stage gate"])
    lines = drawn(shown, height=24)
    assert len(lines) < 24
    assert lines[-1] == "... and 20 arms are done, 3 more arms"
    assert not any("arm01" in one for one in lines)
    assert len(drawn(shown, height=60)) == 42


@pytest.fixture
def environment(repository: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(repository / "src")}


def test_watch_says_a_line_in_a_pipe_and_draws_on_a_terminal(
    plan: Plan, store: Store, work: Path, repository: Path, environment: dict[str, str]
) -> None:
    words = ["watch", "--study", str(repository / "config/mini.yaml"), "--arms", "none recite"]
    words += [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-m", "internalize.cli", *words]
    code, said = piped(command, work, environment)
    assert code == 0
    assert len(said.splitlines()) == 1
    assert said.endswith("jobs done\n")
    assert all(one.isprintable() for one in said.rstrip("\n"))
    code, said = on_terminal(command, work, environment)
    assert code == 0
    assert "━" in said
    assert said.rstrip().endswith("\x1b[?25h"), "the cursor is back"


def test_watch_repeats_no_line(
    fake_slurm: FakeSlurm, plan: Plan, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([True, True, False])
    monkeypatch.setattr(status.Board, "live", property(lambda board: next(looks)))
    said = CliRunner().invoke(app, ["watch", "--study", str(repository / "config/mini.yaml"), "--every", "0.5"]).output
    assert len(said.splitlines()) == 1
