"""Plans of the small study in an empty working directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import Plan


@pytest.fixture
def make_plan(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """A plan of config/mini.yaml with overrides, in an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def make(*settings: str, arms: str = "none recite", steps_per_job: int | None = None) -> Plan:
        return Plan(load_study(repository / "config/mini.yaml", arms=arms, set=settings), repository, steps_per_job)

    return make


@pytest.fixture
def store() -> Store:
    """The store of the working directory."""
    return Store(Path("store"))
