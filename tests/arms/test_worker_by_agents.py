"""A step whose rollout an agent plays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubles import Double

from internalize.arms.segment import run_segment
from internalize.files import read_jsonl
from internalize.harness import choose
from internalize.harness.episode import read_episodes
from internalize.receipts import Receipt
from internalize.rollout.dump import load_dump
from internalize.store import Store

FAILS = "r0000-g001-1"


@pytest.fixture
def step(prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Receipt, Path, Store]]:
    """Run one RL step of four episodes in a store of its own."""

    def run(name: str, harness: dict[str, Any] | None, hows: dict[str, str]) -> tuple[Receipt, Path, Store]:
        monkeypatch.setitem(choose.AGENTS, "double", lambda: Double(hows=hows))
        spec = prepared.segment("none", 0)
        spec["rollout"] = spec["rollout"] | {"episodes": 4, "group_size": 2} | ({"harness": harness} if harness else {})
        store = Store(tmp_path / name)
        store.root.mkdir()
        for stage in ("base", "knowledge", "gate"):
            (store.root / stage).symlink_to(prepared.store.root / stage)
        output = tmp_path / f"{name}-receipts/receipts/arms/none/seed0/steps0000-0000/step0000.json"
        receipt = run_segment(spec, "code", prepared.inputs(), output, store, lambda text: None)
        return receipt, store.open(receipt).payload, store

    return run


def test_an_invalid_episode_is_kept_counted_and_never_trained_on(step: Any) -> None:
    """And two runs give equal receipts, whichever agent was faster, though their transcripts differ."""
    harness = {"type": "double", "parallel": 3, "seconds": 60.0}
    first, payload, store = step("one", harness, {FAILS: "killed"})
    episodes = read_episodes(payload)
    assert {e.plan.id: e.reason for e in episodes if not e.valid} == {FAILS: "agent_killed"}
    assert first.facts["invalid"] == {"agent_killed": 1}
    metrics = next(row for row in read_jsonl(payload / "metrics.jsonl") if row["kind"] == "rollout")
    assert (metrics["episodes"], metrics["invalid_episodes"], metrics["invalid_because_agent_killed"]) == (3, 1, 1)
    trained = {s.episode for batch in load_dump(payload / "rollout/0.pt").batches for s in batch}
    assert trained == {e.plan.id for e in episodes} - {FAILS}
    kept = {file["path"].split("/")[1] for file in store.run_info(first)["work"]}
    assert kept == {e.plan.id for e in episodes}
    assert not any(file.path.startswith("work/") for file in first.files)

    second, other, _ = step("two", harness, {FAILS: "killed"})
    assert second == first
    told = [(folder / "work" / FAILS / "settings.json").read_text() for folder in (payload, other)]
    assert told[0] != told[1]


def test_an_agent_trains_what_play_in_process_trains(step: Any) -> None:
    """The same tokens; log-probs up to rounding, because calls run in other batches."""
    _, here, _ = step("inprocess", None, {})
    _, there, _ = step("agent", {"type": "double", "parallel": 2, "seconds": 60.0}, {})
    batches = [load_dump(folder / "rollout/0.pt").batches for folder in (here, there)]
    for one, two in zip(*batches, strict=True):
        assert [(s.episode, s.tokens, s.advantages, s.pg_mask) for s in one] == [
            (s.episode, s.tokens, s.advantages, s.pg_mask) for s in two
        ]
        for a, b in zip(one, two, strict=True):
            assert b.rollout_logprobs == pytest.approx(a.rollout_logprobs, abs=1e-5)


def test_a_policy_that_only_repeats_itself_is_a_result_and_trains_nothing(step: Any) -> None:
    """Every episode ends by the agent's loop guard: the policy is to blame, so the step is a result."""
    plans = [f"r0000-g00{group}-{index}" for group in (0, 1) for index in (0, 1)]
    harness = {"type": "double", "parallel": 3, "seconds": 60.0}
    receipt, payload, _ = step("loops", harness, dict.fromkeys(plans, "loop guard"))
    assert receipt.facts["invalid"] == {"loop_guard": 4}
    assert (receipt.facts["episodes"], receipt.facts["return_mean"]) == (0, None)
    rows = {row["kind"]: row for row in read_jsonl(payload / "metrics.jsonl")}
    assert (rows["rollout"]["invalid_because_loop_guard"], rows["train"]["optimizer_steps"]) == (4, 0)
    assert not [s for batch in load_dump(payload / "rollout/0.pt").batches for s in batch]
