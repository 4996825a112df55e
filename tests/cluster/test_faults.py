"""Whatever happens to a job, the study goes on where it was and comes out the same.

The cases run side by side, a few at a time, each on nodes and in a folder of its own; a test waits for its case. A case
has a step caught, so it does not depend on the machine's speed; `test_signals.py` has random moments.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from cases import ENDED, Case, prepare
from workbench import Bench

from internalize.cluster.sandbox import Sandbox

WORKERS = 6
Play = Callable[[Case], None]
PLAYS: dict[str, tuple[str, Play]] = {}
NODE3, NODE4 = threading.Lock(), threading.Lock()
"""Held while the node may die. All other cases keep to nodes 1 and 2."""


def play(node: str) -> Callable[[Play], Play]:
    """A case of the fault matrix, on a node of its own where it takes the node down."""

    def register(function: Play) -> Play:
        PLAYS[function.__name__] = (node, function)
        return function

    return register


def _draw(name: str, least: int, most: int) -> int:
    """How many steps are committed when the signal comes."""
    return random.Random(name).randint(least, most)


@play("node3")
def node_dies_and_the_job_is_not_requeued(case: Case) -> None:
    profile = case.profile / "config.yaml"
    profile.write_text(profile.read_text().replace("slurm-requeue: true", "slurm-no-requeue: true"))
    with NODE3:
        run = case.start("--retries", "1")
        case.catch()
        before = case.committed()
        (job,) = case.jobs()
        case.box.kill_node("node3")
        case.until(lambda: case.state(job) in ENDED, "nobody notices the death")
        assert case.state(job) == "NODE_FAIL"
        case.box.start_node("node3")
        case.finish(run)
    assert [case.state(job) for job in case.jobs()] == ["NODE_FAIL", "COMPLETED"]
    case.check(before)


@play("node4")
def node_dies_and_the_job_is_requeued(case: Case) -> None:
    with NODE4:
        run = case.start("--retries", "0")
        case.catch()
        before = case.committed()
        (job,) = case.jobs()
        case.box.kill_node("node4")
        case.until(lambda: case.state(job) == "PENDING", "the job is not requeued")
        case.box.start_node("node4")
        case.finish(run)
    assert case.jobs() == [job]
    case.check(before)


@play("node1")
def time_limit_seen_coming(case: Case) -> None:
    run = case.start("--retries", "0")
    process = case.catch()
    (job,) = case.jobs()
    # its last minute and a half, in which Slurm, looking every half minute, sends what `--signal` asks for
    case.box.run("scontrol", "update", f"jobid={job}", "endtime=now+100")
    case.until(lambda: "told to stop after its current step" in case.said(), "no signal")
    before = case.committed()
    process.send(signal.SIGCONT)
    case.until(lambda: "stopped after a committed step" in case.said(), "the segment goes on")
    assert len(case.committed()) == len(before) + 1, "it finishes the step that it is in"
    before = case.committed()
    case.finish(run)
    assert case.jobs() == [job]
    assert "Restarts=1" in case.box.run("scontrol", "show", "job", job)
    case.check(before)


@play("node2")
def requeue_then_preemption(case: Case) -> None:
    run = case.start("--retries", "0")
    case.catch()
    (job,) = case.jobs()
    case.box.run("scontrol", "requeue", job)
    case.catch(len(case.committed()) + 1)
    before = case.committed()
    words = ["--partition=urgent", "--nodelist=node2", "--exclusive", "--time=1", "--output=/dev/null"]
    urgent = case.box.run("sbatch", "--parsable", *words, "--wrap", "sleep 1").strip()
    case.until(lambda: case.state(urgent) == "COMPLETED", "the urgent job does not run")
    case.finish(run)
    assert case.jobs() == [job]
    assert "Restarts=2" in case.box.run("scontrol", "show", "job", job)
    case.check(before)


@play("node1")
def job_fails_then_its_time_is_up_in_a_step(case: Case) -> None:
    run = case.start("--retries", "2")
    case.catch().send(signal.SIGKILL)
    case.until(lambda: len(case.jobs()) == 2, "the failed job is not submitted again")
    case.catch(len(case.committed()) + 1)
    before = case.committed()
    # a moment from now: what is over when Slurm hears of it is refused
    case.box.run("scontrol", "update", f"jobid={case.jobs()[1]}", "endtime=now+20")
    case.finish(run)
    assert [case.state(job) for job in case.jobs()] == ["FAILED", "TIMEOUT", "COMPLETED"]
    case.check(before)


@play("-node1,node2")
def node_is_cut_off_and_its_job_runs_on(case: Case) -> None:
    with NODE3, NODE4:
        run = case.start("--retries", "0")
        orphan = case.catch()
        before = case.committed()
        (job,) = case.jobs()
        lost = case.box.run("squeue", "-h", "-j", job, "-o", "%N").strip()
        case.box.kill_node(lost, processes=False)
        case.until(lambda: "run 1: " in case.said(), "the job does not start elsewhere")
        time.sleep(5)  # the second writer has started; it must wait
        assert case.committed() == before, "two writers"
        assert orphan.alive
        orphan.send(signal.SIGCONT)
        case.finish(run)
        case.box.start_node(lost)
    case.check(before)


@play("node1")
def scancel_then_snakemake_gets_sigint(case: Case) -> None:
    run = case.start("--retries", "0")
    process = case.catch(_draw("scancel", 1, 2))
    case.box.run("scancel", *case.jobs())
    case.finish(run, status=1)
    case.until(lambda: not process.alive, "the cancelled job's process lives on")
    run = case.start()
    process = case.catch(len(case.committed()) + _draw("int", 1, 2))
    before = case.committed()
    run.send_signal(signal.SIGINT)
    case.finish(run, status=1)
    case.until(lambda: not process.alive, "the cancelled job's process lives on")
    case.finish(case.start())
    assert [case.state(job) for job in case.jobs()] == ["CANCELLED", "CANCELLED", "COMPLETED"]
    case.check(before)


@play("node1")
def snakemake_is_killed_and_its_job_runs_on_and_the_next_gets_sigterm(case: Case) -> None:
    run = case.start()
    orphan = case.catch(_draw("kill", 1, 3))
    before = case.committed()
    run.kill()
    case.finish(run, status=-signal.SIGKILL)
    case.unlock()
    again = case.start()
    case.until(lambda: len(case.jobs()) == 2, "the second run submits no job")
    first, second = case.jobs()
    case.until(lambda: f"job {second}, run 0:" in case.said(), "the second job does not start")
    time.sleep(5)  # it has come to the lease; it must wait
    assert case.committed() == before, "two writers"
    assert case.state(first) == "RUNNING"
    again.send_signal(signal.SIGTERM)
    orphan.send(signal.SIGCONT)
    case.finish(again, status=1)  # it waits for its job and submits no more
    case.until(lambda: case.state(first) in ENDED, "the orphan hangs")
    case.finish(case.start())
    assert [case.state(job) for job in case.jobs()] == ["COMPLETED", "COMPLETED"]
    case.check(before)


@pytest.fixture(scope="module")
def cases(
    box: Sandbox, undisturbed: Bench, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[None]]]:
    """The chosen cases, all running."""
    root = tmp_path_factory.mktemp("faults")

    def perform(name: str) -> None:
        node, function = PLAYS[name]
        case = prepare(box, undisturbed, root / name, node, signal_seconds=60)
        try:
            function(case)
        finally:
            case.close()

    chosen = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(WORKERS) as pool:
        yield {name: pool.submit(perform, name) for name in PLAYS if name in chosen}


@pytest.mark.parametrize("name", PLAYS)
def test_the_study_survives(name: str, cases: dict[str, Future[None]]) -> None:
    cases[name].result()


def test_the_controller_restarts(box: Sandbox, undisturbed: Bench, tmp_path: Path) -> None:
    case = prepare(box, undisturbed, tmp_path / "case", "node1")
    try:
        run = case.start("--retries", "0")
        process = case.catch()
        before = case.committed()
        (job,) = case.jobs()
        box.stop_controller()
        process.send(signal.SIGCONT)
        time.sleep(2)
        box.start_controller()
        case.finish(run)
        assert case.jobs() == [job]
        case.check(before)
    finally:
        case.close()
