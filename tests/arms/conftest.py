"""Receipts of everything an arm needs, made once from the shipped base with a small harvest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from internalize.stages import run_stage
from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import Plan

STUDY = "config/mini.yaml"


@dataclass(frozen=True)
class Prepared:
    """A working directory with receipts, and the plan that its specs come from."""

    work: Path
    plan: Plan

    @property
    def receipts(self) -> Path:
        return self.work / "results" / "receipts"

    @property
    def store(self) -> Store:
        return Store(self.work / "store")

    def inputs(self, *rows: str) -> dict[str, Path]:
        named = {name: self.receipts / f"{name}.json" for name in ("base", "knowledge", "gate")}
        return named | {f"rows.{name}": self.receipts / "rows" / f"{name}.json" for name in rows}

    def segment(self, arm: str, last: int, first: int = 0) -> dict[str, Any]:
        wanted = SimpleNamespace(arm=arm, seed="0", first=str(first), last=str(last))
        spec: dict[str, Any] = json.loads(self.plan.spec("segment")(wanted))
        return spec


@pytest.fixture(scope="session")
def prepare(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Prepared]:
    settings = (
        "arms.recite.steps=6",
        "arms.none.steps=6",
        "arms.recite.schedule={type: sft_first, steps: 2}",
        "rows.labelled={type: softlabel, episodes: 8}",
        "arms.soft={rows: labelled, steps: 2}",
        "arms.both={rows: teacher_turns, steps: 2, schedule: {type: sft_joint, fraction: 0.5}}",
        "arms.both.parallel={precision: bf16, micro_batch_tokens: 700}",
    )
    plan = Plan(load_study(repository / STUDY, set=settings), repository)

    def make() -> Prepared:
        prepared = Prepared(tmp_path_factory.mktemp("arms"), plan)

        def stage(stage: str, output: str, inputs: dict[str, Path], **wildcards: str) -> None:
            spec = json.loads(plan.spec(stage)(SimpleNamespace(**wildcards)))
            spec["prebuilt"] = str(repository / spec["prebuilt"]) if "prebuilt" in spec else None
            spec = {key: value for key, value in spec.items() if key != "prebuilt" or value is not None}
            run_stage(stage, spec, "code", inputs, prepared.receipts / output, prepared.store, lambda text: None)

        stage("knowledge", "knowledge.json", {})
        stage("base", "base.json", {})
        shared = {name: prepared.receipts / f"{name}.json" for name in ("base", "knowledge")}
        stage("gate", "gate.json", shared)
        stage("harvest", "harvest/teacher.json", shared, harvest="teacher")
        harvest = {"harvest": prepared.receipts / "harvest" / "teacher.json"}
        stage("rows", "rows/teacher_turns.json", shared | harvest, rows="teacher_turns")
        stage("rows", "rows/labelled.json", shared, rows="labelled")
        return prepared

    return make


@pytest.fixture(scope="session")
def prepared(prepare: Callable[[], Prepared]) -> Prepared:
    return prepare()
