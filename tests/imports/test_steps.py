"""Recorded steps count as done, and only what is missing is planned and run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from printed_logs import Printer

from internalize.arms.recorded import CODE
from internalize.arms.segment import run_segment
from internalize.costs.found import find_done
from internalize.costs.jobs import jobs_of
from internalize.files import read_jsonl, write_json
from internalize.imports.steps import import_steps
from internalize.imports.tables import find_logs
from internalize.receipts import Receipt, read_receipt
from internalize.records import MetricRow
from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import Plan

STUDY = "config/cd82.yaml"
ARMS = ["baseline-cc", "act_ctrl-cc", "sft_first_idd-cc"]


@pytest.fixture(scope="module")
def plan(repository: Path) -> Plan:
    return Plan(load_study(repository / STUDY, arms=ARMS), repository)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """act_ctrl-cc whole; baseline-cc five of twelve and one begun; sft_first_idd-cc with a gap behind its second."""
    logs = tmp_path / "archive/slurm-logs"
    logs.mkdir(parents=True)
    for seed, (run, done, begun) in enumerate(
        [("act_ctrl-cc", range(4), []), ("baseline-cc", range(5), [5]), ("sft_first_idd-cc", [0, 1, 3], [])]
    ):
        printer = Printer(seed, f"65000{seed}1", run, day=9 + seed)
        for number in done:
            printer.rollout(number, {})
        for number in begun:
            printer.rollout(number, {}, finished=False)
        (logs / f"rl-{printer.job}.out").write_text("\n".join(printer.lines))
    checkpoint = tmp_path / "archive/checkpoints/baseline-cc"
    (checkpoint / "iter_0000004").mkdir(parents=True)
    (checkpoint / "iter_0000004/common.pt").write_bytes(b"weights")
    (checkpoint / "rollout").mkdir()
    (checkpoint / "rollout/global_dataset_state_dict_4.pt").write_bytes(b"cursor")
    return tmp_path / "archive"


def test_what_is_recorded_is_not_planned(plan: Plan, record: Path, tmp_path: Path) -> None:
    store, said = Store(tmp_path / "store"), list[str]()
    before = find_done(jobs_of(plan), plan, store).steps
    made = {one.arm: one for one in import_steps(find_logs(record), plan, store, record, said.append)}
    found = find_done(jobs_of(plan), plan, store).steps
    assert before == {}
    assert sorted(found) == sorted(
        [("act_ctrl-cc", 0, step) for step in range(4)]
        + [("baseline-cc", 0, step) for step in range(5)]
        + [("sft_first_idd-cc", 0, step) for step in range(2)]
    )
    assert made["baseline-cc"].missing == [5, 6, 7, 8, 9, 10, 11]
    assert made["baseline-cc"].left_out == [5]
    assert made["sft_first_idd-cc"].left_out == [3], "a step behind a gap is not done"
    assert made["act_ctrl-cc"].missing == []
    assert made["baseline-cc"].checkpoints == [4]
    assert any("the checkpoint of step 1 is needed" in line for line in said)
    assert not any("baseline-cc" in line and "is needed" in line for line in said)
    again = import_steps(find_logs(record), plan, store, record, said.append)
    assert {one.arm: one for one in again} == made
    assert find_done(jobs_of(plan), plan, store).steps == found


def test_a_recorded_step_says_what_its_logs_say(plan: Plan, record: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    import_steps(find_logs(record), plan, store, record, lambda text: None)
    receipt = find_done(jobs_of(plan), plan, store).steps["baseline-cc", 0, 4]
    assert (receipt.code, receipt.parents, receipt.facts["recorded"]) == (CODE, {}, True)
    said = Printer(1, "6500011", "baseline-cc", day=10)
    shown = [said.rollout(number, {}) for number in range(5)][-1]
    assert receipt.facts["return_mean"] == shown["e2k/shaped_return"]
    assert receipt.facts["clears"] == shown["e2k/clear_rate"] * 32
    opened = store.open(receipt)
    rows = [MetricRow.model_validate(row) for row in read_jsonl(opened.payload / "metrics.jsonl")]
    assert [(row.kind, row.step) for row in rows] == [("rollout", 4), ("train", 4)]
    assert (opened.payload / "iter_0000004/common.pt").read_bytes() == b"weights"


def test_other_settings_are_other_steps(record: Path, tmp_path: Path, repository: Path, plan: Plan) -> None:
    store = Store(tmp_path / "store")
    import_steps(find_logs(record), plan, store, record, lambda text: None)
    faster = Plan(load_study(repository / STUDY, arms=ARMS, set=["rl.lr=1e-5"]), repository)
    found = find_done(jobs_of(faster), faster, store).steps
    assert {arm for arm, _, _ in found} == {"act_ctrl-cc", "sft_first_idd-cc"}, "SFT steps alone do not read rl.lr"
    assert all(step < 2 for _, _, step in found)


def test_a_recorded_segment_computes_nothing(plan: Plan, record: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    import_steps(find_logs(record), plan, store, record, lambda text: None)
    inputs = {}
    for name in ("base", "knowledge", "gate", "rows.own_turns"):
        inputs[name] = tmp_path / f"{name}.json"
        made = Receipt(
            stage="x", name=name, key=name, code="", spec={}, parents={}, entry="x/y", files=[], facts={}, status="done"
        )
        write_json(inputs[name], made.model_dump())
    words = SimpleNamespace(arm="act_ctrl-cc", seed="0", first="0000", last="0003")
    output = tmp_path / "receipts/arms/act_ctrl-cc/seed0/steps0000-0003/step0003.json"
    said: list[str] = []
    spec = json.loads(plan.spec("segment")(words))
    run_segment(spec, plan.code("segment"), inputs, output, store, said.append)
    assert [line.rpartition(": ")[2] for line in said] == ["already in the store"] * 4
    assert [read_receipt(output.with_name(f"step{step:04d}.json")).facts["phase"] for step in range(4)] == [
        *["sft"] * 2,
        *["rl"] * 2,
    ]
