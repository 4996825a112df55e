"""A finished small study, made once, and copies of it to try changes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from workbench import Bench, check_out


@pytest.fixture(scope="session")
def finished(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The small study, run to its end. Read-only: tests that change something take a `bench`."""
    root = tmp_path_factory.mktemp("finished")
    check_out(repository, root / "checkout")
    (root / "work").mkdir()
    bench = Bench(root / "checkout", root / "work")
    bench.run()
    return bench


@pytest.fixture
def clone(finished: Bench, tmp_path: Path) -> Callable[[str], Bench]:
    """Copies of the finished study: another checkout, the results as they are, the store by hard links."""

    def copy(name: str = "bench") -> Bench:
        root = tmp_path / name
        check_out(finished.checkout, root / "checkout")
        (root / "work").mkdir()
        for part in ("results", ".snakemake", "logs"):
            shutil.copytree(finished.work / part, root / "work" / part)
        shutil.copytree(finished.work / "store", root / "work" / "store", copy_function=os.link)
        return Bench(root / "checkout", root / "work")

    return copy


@pytest.fixture
def bench(clone: Callable[[str], Bench]) -> Bench:
    """One copy of the finished study."""
    return clone("bench")
