"""A segment is watched: what it writes about itself is in no hash, and a hang ends it without a trace."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from internalize.arms.segment import run_segment
from internalize.diagnostics.stall import Stalled
from internalize.files import read_json, read_jsonl
from internalize.train.trainer import Trainer


def run(prepared: Any, **changes: Any) -> tuple[Any, list[str]]:
    path = prepared.receipts / "arms" / "recite" / "seed0" / "steps0000-0000" / "step0000.json"
    said: list[str] = []
    spec = prepared.segment("recite", 0) | changes
    return run_segment(spec, "watched", prepared.inputs("teacher_turns"), path, prepared.store, said.append), said


def running(prepared: Any) -> set[Path]:
    return set((prepared.work / "store" / "running").glob("*"))


def entries(prepared: Any) -> set[Path]:
    return set((prepared.work / "store" / "step").glob("*/receipt.json"))


def test_a_hang_ends_the_segment_and_the_next_run_goes_on(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, others = entries(prepared), running(prepared)
    limits = {"diagnostics": {"deadlines": {"train": 0.5}, "sample_seconds": 0.2}}
    monkeypatch.setattr(Trainer, "train_step", lambda *args: time.sleep(60))
    with pytest.raises(Stalled) as ended:
        run(prepared, **limits)
    assert ended.value.where == "recite-seed0-step0000"
    (folder,) = running(prepared) - others
    assert "test_watched_segment.py" in (folder / "stacks.txt").read_text()
    assert read_json(folder / "heartbeat.json")["phase"] == "train"
    assert entries(prepared) == before

    monkeypatch.undo()
    receipt, said = run(prepared)
    entry = prepared.work / "store" / receipt.entry
    assert running(prepared) == others
    assert (entry / "runtime" / "stacks.txt").exists(), "what the failed run left stays"
    (samples,) = (entry / "runtime" / "meminfo").iterdir()
    assert {row["phase"] for row in read_jsonl(samples)} >= {"train"}
    assert not any("runtime" in file.path for file in receipt.files)
    assert prepared.store.open(receipt).payload == entry

    # limits are no part of what determines a step
    again, said = run(prepared, **limits)
    assert again == receipt
    assert all("already in the store" in line for line in said)


def test_a_number_that_goes_wrong_is_named_in_the_metrics(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Trainer.load_hf

    def overflowing(trainer: Trainer, state: Any) -> None:
        load(trainer, {**state, name: state[name] * 0 + 1e38})

    name = "model.layers.1.mlp.up_proj.weight"
    monkeypatch.setattr(Trainer, "load_hf", overflowing)
    spec = prepared.segment("recite", 0) | {"seed": 1}
    path = prepared.receipts / "arms" / "recite" / "seed1" / "steps0000-0000" / "step0000.json"
    receipt = run_segment(spec, "broken", prepared.inputs("teacher_turns"), path, prepared.store, lambda text: None)
    rows = read_jsonl(prepared.work / "store" / receipt.entry / "metrics.jsonl")
    (row,) = [row for row in rows if row["kind"] == "train"]
    assert row["broken"].startswith("the output of decoder.layers.1.mlp.linear_fc1 [")
    assert row["broken_at"].startswith("optimizer step 1, micro-batch 1 of 1, episodes ")
    assert receipt.status == "stopped"
