"""A study that has begun: fixtures that tests of what is shown share."""

from __future__ import annotations

from pathlib import Path

import pytest
from filler import Filler

from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import Plan

SETTINGS = ("arms.recite.steps=6", "arms.none.steps=3", "arms.none.seeds=[0,1]")


@pytest.fixture
def plan(repository: Path, work: Path) -> Plan:
    return Plan(load_study(repository / "config/mini.yaml", arms="none recite", set=SETTINGS), repository)


@pytest.fixture
def store(plan: Plan) -> Store:
    """Two steps of recite, all of none's seed 0."""
    store = Store(Path("store"))
    wanted = {("recite", 0): 2, ("none", 0): 99, ("none", 1): 0}
    Filler(plan, store).fill(lambda job, step: job.arm is None or step < wanted[str(job.arm), int(job.seed or 0)])
    return store
