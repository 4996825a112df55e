"""A segment resumes bit for bit, and its cut into jobs changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from internalize.arms.segment import run_segment
from internalize.arms.settings import step_settings
from internalize.checkpoints import layout
from internalize.files import read_json, read_jsonl
from internalize.receipts import Receipt, read_receipt
from internalize.records import JournalRow, MetricRow
from internalize.rollout.dump import load_dump

LAST = 5


def output(work: Path, name: str, last: int = LAST) -> Path:
    return work / "results" / "receipts" / "arms" / name / "seed0" / f"steps0000-{last:04d}" / f"step{last:04d}.json"


def steps(path: Path, last: int = LAST) -> list[Receipt]:
    return [read_receipt(path.with_name(f"step{step:04d}.json")) for step in range(last + 1)]


def run(prepared, arm: str, last: int = LAST, rows: tuple[str, ...] = ("teacher_turns",), **changes):  # type: ignore[no-untyped-def]
    spec = prepared.segment(arm, last) | changes
    said: list[str] = []
    path = output(prepared.work, arm, last)
    run_segment(spec, "code", prepared.inputs(*rows), path, prepared.store, said.append)
    return steps(path, last), said


@pytest.fixture(scope="module")
def whole(prepared):  # type: ignore[no-untyped-def]
    """Six steps without interruption."""
    return run(prepared, "recite")[0]


def test_killed_and_resumed_equals_uninterrupted(whole: list[Receipt], prepare: Callable) -> None:  # type: ignore[type-arg]
    other = prepare()
    path = output(other.work, "recite")
    command = [sys.executable, "-m", "internalize.cli", "segment", "--code", "code", "--output", str(path)]
    command += ["--spec", json.dumps(other.segment("recite", LAST)), "--store", str(other.work / "store")]
    command += [
        word for name, receipt in other.inputs("teacher_turns").items() for word in ("--input", f"{name}={receipt}")
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:  # killed while step 3 plays, trains or saves
        if "step 2/" in line:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL
    done = sorted(p.stem for p in path.parent.glob("*.json"))
    assert "step0005" not in done
    resumed = subprocess.run(command, capture_output=True, text=True, check=True)
    for step in range(3):
        assert f"step {step}/{LAST}: already in the store" in resumed.stderr
    assert [receipt.model_dump() for receipt in steps(path)] == [receipt.model_dump() for receipt in whole]


def test_cutting_an_arm_into_jobs_changes_nothing(whole: list[Receipt], prepare: Callable) -> None:  # type: ignore[type-arg]
    other = prepare()
    previous: dict[str, Path] = {}
    found: list[Receipt] = []
    for first, last in ((0, 0), (1, 3), (4, 5)):
        path = other.receipts / "arms" / "recite" / "seed0" / f"steps{first:04d}-{last:04d}" / f"step{last:04d}.json"
        inputs = other.inputs(*(["teacher_turns"] if first < 2 else [])) | previous
        run_segment(other.segment("recite", last, first), "code", inputs, path, other.store, lambda text: None)
        found += [read_receipt(path.with_name(f"step{step:04d}.json")) for step in range(first, last + 1)]
        previous = {"previous": path}
    assert [receipt.model_dump() for receipt in found] == [receipt.model_dump() for receipt in whole]


def test_more_steps_keep_what_there_is(whole: list[Receipt], prepared) -> None:  # type: ignore[no-untyped-def]
    shorter, said = run(prepared, "recite", last=3)
    assert all("already in the store" in line for line in said)
    assert [receipt.hash() for receipt in shorter] == [receipt.hash() for receipt in whole[:4]]


def test_a_step_leaves_its_whole_record(whole: list[Receipt], prepared) -> None:  # type: ignore[no-untyped-def]
    for step, receipt in enumerate(whole):
        folder = prepared.store.open(receipt).payload
        assert layout.read_tracker(folder) == step
        assert layout.read_cursor(folder, step)["next_step"] == step + 1
        rows = [MetricRow.model_validate(row) for row in read_jsonl(folder / "metrics.jsonl")]
        dump = load_dump(folder / "rollout" / f"{step}.pt")
        if receipt.facts["phase"] == "sft":
            assert [row.kind for row in rows] == ["train", "guard"]
            assert all(sequence.ce_weights is not None for batch in dump.batches for sequence in batch)
            continue
        assert [row.kind for row in rows] == ["rollout", "train", "guard"]
        assert rows[1].numbers()["logprob_abs_diff"] < 1e-5  # the engine plays what the trainer holds
        assert all(sequence.pg_mask is not None for batch in dump.batches for sequence in batch)
        for row in read_jsonl(folder / "journal.jsonl.zst"):
            row.pop("session")
            JournalRow.model_validate(row)
        assert (folder / "shaping.json").exists()


def test_joint_and_softlabel_steps_train_on_both_and_on_labels(prepared) -> None:  # type: ignore[no-untyped-def]
    joint, _ = run(prepared, "both", last=0)
    batch = load_dump(prepared.store.open(joint[0]).payload / "rollout" / "0.pt").batches[0]
    assert any(s.ce_weights is not None for s in batch)
    assert any(s.pg_mask is not None for s in batch)
    soft, _ = run(prepared, "soft", last=0, rows=("labelled",))
    batch = load_dump(prepared.store.open(soft[0]).payload / "rollout" / "0.pt").batches[0]
    assert all(s.kl_mask is not None and s.ce_weights is None for s in batch)


def test_the_guard_stops_an_arm_and_the_rest_passes_through(prepared) -> None:  # type: ignore[no-untyped-def]
    wild = prepared.segment("recite", LAST)["rl"] | {"lr": 1.0}  # ruins the policy in one rollout
    receipts, said = run(prepared, "recite", rl=wild)
    stopped = [receipt for receipt in receipts if receipt.status == "stopped"]
    assert stopped
    first = stopped[0].facts["stopped_at"]
    assert [receipt.status for receipt in receipts] == ["done"] * first + ["stopped"] * (LAST + 1 - first)
    record = read_json(prepared.store.open(receipts[first]).payload / "collapse_guard.json")
    assert record["stop"]
    assert record["reasons"] == receipts[first].facts["reasons"]
    assert record["last_good_step"] < first
    assert all(receipt.facts.get("passed_through") and not receipt.files for receipt in receipts[first + 1 :])
    assert any("stopped at step" in line for line in said)


def test_a_step_spec_does_not_depend_on_its_segment(prepared) -> None:  # type: ignore[no-untyped-def]
    for step in range(LAST + 1):
        alone = step_settings(prepared.segment("recite", step, step), step)
        assert alone.spec == step_settings(prepared.segment("recite", LAST), step).spec
