"""One Slurm sandbox for all tests of this folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import SETTINGS
from workbench import Bench, check_out

from internalize.cluster.sandbox import Sandbox, missing_programs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs Slurm."""
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        if {"box", "cases"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A running sandbox of four nodes; skipped where Slurm is not installed, unless it is required."""
    missing = missing_programs()
    if missing:
        why = f"Slurm is not installed (no {', '.join(missing)}): apt-get install slurm-wlm munge"
        if os.environ.get("INTERNALIZE_REQUIRE_SLURM"):
            pytest.fail(why)
        pytest.skip(why)
    sandbox = Sandbox(tmp_path_factory.mktemp("box"))
    try:
        sandbox.start()
        yield sandbox
    finally:
        sandbox.stop()


@pytest.fixture(scope="session")
def undisturbed(repository: Path, tmp_path_factory: pytest.TempPathFactory, box: Sandbox) -> Bench:
    """The small study, run on this machine to its end without any fault: what every run on the cluster must equal.
    Under xdist one worker runs it for all. Read-only."""
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "undisturbed"
    bench = Bench(root / "checkout", root / "work")
    root.mkdir(exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "done").exists():
            check_out(repository, bench.checkout)
            bench.work.mkdir()
            bench.run(arms=None, config=SETTINGS)
            (root / "done").touch()
    return bench
