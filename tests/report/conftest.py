"""A synthetic study: payload folders as the stages write them, with numbers that tests can compute by
hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from internalize.files import write_jsonl
from internalize.receipts import Receipt
from internalize.store import Input

Outcomes = Sequence[tuple[bool, float]]
"""Cleared and return of each episode."""


@dataclass
class Synthetic:
    """Collects inputs and the spec of a report."""

    root: Path
    inputs: dict[str, Input] = field(default_factory=dict)
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, label: str, status: str = "done", **facts: Any) -> Path:
        payload = self.root / label
        payload.mkdir()
        receipt = Receipt.model_validate(
            {
                "stage": "step",
                "name": label,
                "key": "0" * 64,
                "code": "",
                "spec": {},
                "parents": {},
                "entry": label,
                "files": [],
                "status": status,
                "facts": facts,
            }
        )
        self.inputs[label] = Input(receipt, payload)
        return payload

    def arm(self, name: str, phases: Sequence[str], seeds: Sequence[int] = (0,), **more: Any) -> None:
        self.arms[name] = {"phases": list(phases), "seeds": list(seeds), **more}

    def step(
        self, arm: str, seed: int, step: int, rollout: Outcomes = (), train: dict[str, Any] | None = None
    ) -> None:
        phase = self.arms[arm]["phases"][step]
        payload = self.add(f"step.{arm}.{seed}.{step:04d}", phase=phase)
        head = {"step": step, "phase": phase, "seed": seed}
        rows: list[dict[str, Any]] = [{**head, "kind": "train", "loss": 1.0, **(train or {})}]
        if rollout:
            rows.insert(0, {**head, "kind": "rollout", **summed(rollout)})
            write_jsonl(
                payload / "episodes.jsonl",
                episode_rows(rollout, group_size=4, first_seed=1000 * seed + 100 * step),
            )
        write_jsonl(payload / "metrics.jsonl", rows)

    def stop(self, arm: str, seed: int, step: int, at: int, reasons: Sequence[str]) -> None:
        self.add(
            f"step.{arm}.{seed}.{step:04d}",
            status="stopped",
            phase="rl",
            stopped_at=at,
            reasons=list(reasons),
        )

    def evals(self, label: str, steps: dict[int, tuple[Outcomes, dict[str, Any]]]) -> None:
        payload = self.add(label)
        rows = []
        for step, (outcomes, probe) in steps.items():
            rows.append({"step": step, "phase": "sft", "kind": "probe", **probe})
            if outcomes:
                rows.append({"step": step, "phase": "sft", "kind": "eval", **summed(outcomes)})
                name = "step-base" if step < 0 else f"step-{step:04d}"
                write_jsonl(
                    payload / "episodes" / name / "episodes.jsonl", episode_rows(outcomes, 1, 5_000_000)
                )
        write_jsonl(payload / "metrics.jsonl", rows)

    def spec(self, **more: Any) -> dict[str, Any]:
        return {"name": "synthetic", "arms": self.arms, **more}


def summed(outcomes: Outcomes) -> dict[str, Any]:
    clears = sum(cleared for cleared, _ in outcomes)
    return {
        "episodes": len(outcomes),
        "clears": clears,
        "clear_rate": clears / len(outcomes),
        "return_mean": sum(value for _, value in outcomes) / len(outcomes),
        "recital_share": 0.25,
        "calls_per_episode": 4.0,
    }


def episode_rows(outcomes: Outcomes, group_size: int, first_seed: int) -> list[dict[str, Any]]:
    return [
        {
            "plan": {
                "id": f"e{i}",
                "level": i // group_size % 4 + 1,
                "seed": first_seed + i // group_size,
                "group": 0,
                "index": 0,
            },
            "outcome": {"cleared": cleared},
            "returned": value,
            "valid": True,
        }
        for i, (cleared, value) in enumerate(outcomes)
    ]


@pytest.fixture
def synthetic(tmp_path: Path) -> Callable[[], Synthetic]:
    def make() -> Synthetic:
        root = tmp_path / "store"
        root.mkdir()
        return Synthetic(root)

    return make
