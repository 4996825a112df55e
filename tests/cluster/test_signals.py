"""Snakemake gets SIGINT, SIGTERM or SIGKILL at random moments of a run and is run again (minutes: `pytest -m slow`).

Five moments a signal, one in each fifth of the time that an undisturbed run takes beside the others: while Snakemake
starts, submits, waits, while a job starts or trains, between two jobs.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from cases import ENDED, SETTINGS, STEPS, Case, prepare, segment
from workbench import Bench

from internalize.cluster.sandbox import Sandbox

MOMENTS = 5
SIGNALS = ("SIGINT", "SIGTERM", "SIGKILL")
pytestmark = pytest.mark.slow


def make(box: Sandbox, undisturbed: Bench, folder: Path) -> Case:
    """A case of two jobs, one behind the other."""
    case = prepare(box, undisturbed, folder)
    case.target, case.settings = segment(STEPS // 2, STEPS - 1), (*SETTINGS, f"steps_per_job={STEPS // 2}")
    return case


def strike(case: Case, name: str, moment: float) -> str:
    """Sends the signal so many seconds after the start, runs to the end, checks; tells what was hit."""
    run = case.start("--retries", "0")
    try:
        run.wait(moment)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.Signals[name])
    before, jobs = case.committed(), [case.state(job) for job in case.jobs()]
    status = run.wait()
    if name == "SIGKILL":
        case.unlock()
    case.finish(case.start())
    case.until(lambda: all(case.state(job) in ENDED for job in case.jobs()), "a job hangs")
    case.check(before)
    after = [case.state(job) for job in case.jobs()]
    return f"{name} at {moment:.0f} s: {len(before)} steps, jobs {jobs}, status {status}; in the end {after}"


@pytest.fixture(scope="module")
def strikes(
    box: Sandbox, undisturbed: Bench, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[list[str]]]]:
    """The chosen signals side by side, the moments of each one after another."""
    root = tmp_path_factory.mktemp("signals")

    def one_by_one(name: str) -> Iterator[str]:
        whole = make(box, undisturbed, root / name)
        began = time.monotonic()
        whole.finish(whole.start("--retries", "0"))
        length = time.monotonic() - began
        draw = random.Random(name)
        for number in range(MOMENTS):
            case = make(box, undisturbed, root / f"{name}{number}")
            try:
                yield strike(case, name, length * (number + draw.random()) / MOMENTS)
            finally:
                case.close()

    chosen = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(len(SIGNALS)) as pool:
        yield {name: pool.submit(lambda n=name: list(one_by_one(n))) for name in SIGNALS if name in chosen}


@pytest.mark.parametrize("name", SIGNALS)
def test_random_moments(name: str, strikes: dict[str, Future[list[str]]]) -> None:
    print(*strikes[name].result(), sep="\n")
