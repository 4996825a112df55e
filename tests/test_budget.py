"""The purse of a running job: what counts, what stops, what a stop leaves behind."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest

from internalize import budget
from internalize.budget import (
    ENVIRONMENT,
    Account,
    BudgetSpent,
    Purse,
    Terms,
    in_force,
    mark_path,
    read_mark,
    spending,
    spent_node_hours,
    stored_bytes,
)
from internalize.costs.model import TB, CostModel
from internalize.receipts import Receipt
from internalize.store import Store
from internalize.study_cost import Cost

HOUR_A_STEP = Cost(optimizer_step_s=450, start_s=0, episode_s=0, write_gb_per_s=1e9).plain()
SPEC = {"phase": "rl", "rollout": {"episodes": 8}, "rl": {"optimizer_steps": 8}, "step": 3}
MODEL = CostModel(HOUR_A_STEP, 1_000_000, 12.0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    return Store(Path("store"))


def terms(reserve: float = 0.0, **limits: float) -> Terms:
    return Terms(
        "s", limits, MODEL.plain(), {"segment a": 2.0, "segment b": 2.0, "segment c": 2.0, "evals": 2.0}, reserve
    )


def previous(step: int = 2, phase: str = "sft") -> Receipt:
    return Receipt.model_validate(
        {
            "stage": "step",
            "name": "x",
            "key": "0" * 64,
            "code": "c",
            "spec": {"step": step, "phase": phase},
            "parents": {},
            "entry": "step/0",
            "files": [{"path": "a", "sha256": "0", "bytes": 500}],
            "facts": {},
        }
    )


def ledger(store: Store, name: str, **row: Any) -> Path:
    path = store.root / "spent" / "s" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"stage": "segment", "name": "a/seed0", "nodes": 1.0, "node_hours": 0.0, "aside": 0.0, "aside_bytes": 0}
    path.write_text(json.dumps(given | {"host": platform.node(), "pid": os.getpid(), "ended": False} | row))
    return path


def test_outside_a_workflow_nothing_is_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    with spending(store, "segment", "a/seed0") as purse:
        purse.before_step(SPEC, None)
        purse.after_step()
    assert type(purse) is Purse
    assert not store.root.exists()


def test_a_job_of_a_workflow_leaves_what_it_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "")
    terms().export()
    clock = iter([0.0, 0.0, *[3600.0] * 9])
    monkeypatch.setattr(budget.time, "monotonic", lambda: next(clock))
    with pytest.raises(RuntimeError), spending(store, "segment", "a/seed0"):
        raise RuntimeError("the job failed")
    assert spent_node_hours(store, "s") == pytest.approx(2.0), "an hour on two nodes, though it failed"
    assert spent_node_hours(store, "another study") == 0


def test_a_step_that_fits_is_paid_for_and_one_that_does_not_stops_the_arm(store: Store) -> None:
    account = Account(terms(node_hours=5.0), store, "segment", "a/seed7")  # a step: an hour on two nodes
    account.before_step(SPEC, previous())
    account.after_step()
    ledger(store, "done", node_hours=2.5, ended=True)
    account.before_step(SPEC, previous())
    ledger(store, "done", node_hours=3.5, ended=True)
    with pytest.raises(BudgetSpent) as caught:
        account.before_step(SPEC, previous())
    assert str(caught.value).startswith("stopped: budget: arm a, seed 7: step 2 is its last")
    mark = read_mark("a", 7)
    assert mark is not None
    assert (mark["status"], mark["step"], mark["limit"], mark["value"]) == ("stopped: budget", 2, "node_hours", 5.0)
    assert sorted(path.name for path in store.root.iterdir()) == ["spent"], "no entry, no partial entry"


def test_jobs_side_by_side_see_what_the_others_set_aside(store: Store) -> None:
    first = Account(terms(node_hours=3.0), store, "segment", "a/seed0")
    second = Account(terms(node_hours=3.0), store, "segment", "b/seed0")
    first.before_step(SPEC, None)
    with pytest.raises(BudgetSpent, match="it has no step yet"):
        second.before_step(SPEC, None)
    assert read_mark("b", 0) is not None
    first.write(ended=True)
    second.before_step(SPEC, None)


def test_what_a_dead_process_had_set_aside_is_free_again(store: Store) -> None:
    gone = 2**22 + 1  # beyond the greatest process id
    ledger(store, "dead", aside=100.0, aside_bytes=10**15, pid=gone)
    Account(terms(node_hours=3.0, disk_tb=1.0), store, "segment", "a/seed0").before_step(SPEC, None)
    path = ledger(store, "silent", aside=100.0, host="elsewhere", pid=gone)
    with pytest.raises(BudgetSpent):
        Account(terms(node_hours=3.0), store, "segment", "b/seed0").before_step(SPEC, None)
    os.utime(path, (0, 0))
    Account(terms(node_hours=5.0), store, "segment", "c/seed0").before_step(SPEC, None)


def test_evals_have_their_part_kept_back(store: Store) -> None:
    with pytest.raises(BudgetSpent):
        Account(terms(node_hours=5.0, reserve=3.5), store, "segment", "a/seed0").before_step(SPEC, None)
    ledger(store, "evals", stage="evals", node_hours=3.0, ended=True)  # comes out of the reserve, not on top of it
    Account(terms(node_hours=5.6, reserve=3.5), store, "segment", "a/seed0").before_step(SPEC, None)


def test_the_disk_has_its_limit(store: Store) -> None:
    entry = store.root / "step" / "00"
    entry.mkdir(parents=True)
    (entry / "payload").write_bytes(b"0" * 2000)
    ledger(store, "other", aside_bytes=1000)
    size = previous().payload_bytes()
    limit = (2000 + 1000 + size) / TB
    Account(terms(disk_tb=limit), store, "segment", "a/seed0").before_step(SPEC, previous())
    with pytest.raises(BudgetSpent, match="disk_tb"):
        Account(terms(disk_tb=limit), store, "segment", "b/seed0").before_step(SPEC, previous())


def test_stored_bytes_are_payloads_wherever_they_lie(store: Store) -> None:
    for name, count in (("step/a", 10), ("step/b.forgotten-1", 5), ("evals/c", 1), ("spent/s", 100), ("leases", 100)):
        folder = store.root / name
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"0" * count)
    known: dict[tuple[str, int], int] = {}
    assert stored_bytes(store, known) == 16
    (store.root / "step" / "a" / "more").write_bytes(b"00")
    assert stored_bytes(store, known) == 18


def test_a_commit_takes_the_mark_away(store: Store) -> None:
    account = Account(terms(node_hours=1.0), store, "segment", "a/seed0")
    with pytest.raises(BudgetSpent):
        account.before_step(SPEC, None)
    assert mark_path("a", 0).exists()
    account.after_step()
    assert not mark_path("a", 0).exists()


def test_a_mark_holds_until_its_limit_is_raised() -> None:
    mark = {"limit": "node_hours", "value": 5.0}
    assert in_force(mark, {"node_hours": 5.0})
    assert in_force(mark, {"node_hours": 4.0, "disk_tb": 1.0})
    assert not in_force(mark, {"node_hours": 5.1})
    assert not in_force(mark, {"disk_tb": 1.0})
    assert not in_force(mark, {})
