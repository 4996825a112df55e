"""A synthetic study: payload folders as the stages write them, with numbers that tests can compute by
hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

    def step(self, arm: str, seed: int, step: int, rollout: Outcomes = (), train: dict[str, Any] | None = None) -> None:
        phase = self.arms[arm]["phases"][step]
        payload = self.add(f"step.{arm}.{seed}.{step:04d}", phase=phase)
        head = {"step": step, "phase": phase, "seed": seed}
        rows: list[dict[str, Any]] = [{**head, "kind": "train", "loss": 1.0, **(train or {})}]
        if rollout:
            played = sum(before != "sft" for before in self.arms[arm]["phases"][:step])
            rows.insert(0, {**head, "kind": "rollout", **summed(rollout)})
            write_jsonl(
                payload / "episodes.jsonl",
                episode_rows(rollout, group_size=4, first_seed=1000 * seed + 100 * played),
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
                write_jsonl(payload / "episodes" / name / "episodes.jsonl", episode_rows(outcomes, 1, 5_000_000))
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


CLEAR, MISS = (True, 1.0), (False, -0.2)


def probe(nll: float) -> dict[str, Any]:
    return {
        "nll_play": nll,
        "nll_play_false": 4.0,
        "nll_qa": nll / 2,
        "margin_play": 4.0 - nll,
        "qa_accuracy": 0.5,
    }


def filled(made: Synthetic) -> Synthetic:
    """`none` (RL only), `recite` (2 SFT steps, clears more), `idle` (SFT that does nothing), `broken`
    (stopped)."""
    made.arm("none", ["rl", "rl"], seeds=(0, 1))
    made.arm(
        "recite",
        ["sft", "sft", "rl", "rl"],
        seeds=(0, 1),
        rows="teacher_turns",
        schedule="sft_first, steps 2",
    )
    made.arm("idle", ["sft", "rl"], seeds=(0, 1))
    made.arm("broken", ["sft", "rl", "rl"], seeds=(0, 1), status="negative", note="ends in text")
    base = [CLEAR, *[MISS] * 15]
    made.evals("evals.base", {-1: (base, probe(1.5))})
    for seed in (0, 1):
        made.step("none", seed, 0, [CLEAR, *[MISS] * 7])
        made.step("none", seed, 1, [CLEAR, CLEAR, *[MISS] * 6])
        made.evals(f"evals.none.{seed}", {0: (base, probe(1.5)), 1: ([CLEAR, CLEAR, *[MISS] * 14], probe(1.4))})
        made.step("recite", seed, 0)
        made.step("recite", seed, 1)
        made.step("recite", seed, 2, [CLEAR] * 6 + [MISS] * 2)
        made.step("recite", seed, 3, [CLEAR] * 8)
        better = [CLEAR] * (12 + seed) + [MISS] * (4 - seed)
        made.evals(
            f"evals.recite.{seed}",
            {0: ((), probe(1.0)), 1: (better, probe(0.4)), 3: ([CLEAR] * 16, probe(0.2))},
        )
        made.step("idle", seed, 0)
        made.step("idle", seed, 1, [MISS] * 8)
        made.evals(f"evals.idle.{seed}", {0: (base, probe(1.5)), 1: (base, probe(1.5))})
        made.step("broken", seed, 0)
        made.evals(f"evals.broken.{seed}", {0: ([MISS] * 16, probe(1.2))})
        made.stop("broken", seed, 1, at=1, reasons=["60.0% of the episodes end with a text answer (limit 50%)"])
        made.stop("broken", seed, 2, at=1, reasons=["60.0% of the episodes end with a text answer (limit 50%)"])
    made.add("base", which="trained", why="the study asks for training", sha256="f" * 64)
    side = {"clears": 380, "episodes": 384, "wilson_low": 0.97, "wilson_high": 0.996, "return_mean": 0.96}
    made.add("gate", passed=True, teacher=side, base={**side, "clears": 20})
    made.add("knowledge", prompt_facts=["left@N", "wipe@S"], held_out_facts=["wipe@S"], atoms_verified=40)
    made.add("rows.teacher_turns", rows=10)
    return made
