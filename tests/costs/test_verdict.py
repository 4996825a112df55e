"""A plan against its budget: refused before anything starts, and the arms that fit are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from filler import Filler
from typer.testing import CliRunner

from internalize.cli import app
from internalize.costs.estimate import estimate
from internalize.costs.model import TB
from internalize.costs.verdict import OverBudget, check_budget, judge, needs, refuse
from internalize.errors import UserError
from internalize.store import Store
from internalize.workflow import Plan

MakePlan = Callable[..., Plan]
ARMS = "none recite arm_c"
COST = ("cost.start_s=0", "cost.cpu_job_s=0", "cost.measure_s=0", "cost.episode_s=0", "cost.write_gb_per_s=1e9")
STEPS = ("cost.optimizer_step_s=1800", "cost.sft_optimizer_step_s=3600", "cost.nodes=1", "cost.cpu_nodes=0")
"""An RL step of two updates costs one node-hour, an SFT step two."""


@pytest.fixture
def hourly(make_plan: MakePlan) -> MakePlan:
    def make(*settings: str, arms: str = ARMS) -> Plan:
        return make_plan(*COST, *STEPS, *settings, arms=arms)

    return make


def test_arms_fit_in_the_order_of_the_file(hourly: MakePlan, store: Store) -> None:
    # none: 2 RL steps, 2 node-hours; recite and arm_c: an SFT and an RL step, 3 each
    plan = hourly("budget.node_hours=5.01")
    verdict = judge(plan, estimate(plan, store))
    assert verdict.needs["node_hours"] == pytest.approx(8, abs=1e-3)
    assert (verdict.ok, verdict.fits) == (False, ["none", "recite"])
    assert verdict.misses == {"arm_c": {"node_hours": pytest.approx(8, abs=1e-3)}}
    plan = hourly("budget.node_hours=2.5")
    assert judge(plan, estimate(plan, store)).fits == ["none"]
    plan = hourly("budget.node_hours=8.01")
    assert judge(plan, estimate(plan, store)).ok


def test_no_budget_no_limit(hourly: MakePlan, store: Store) -> None:
    plan = hourly()
    assert judge(plan, estimate(plan, store)).fits == ARMS.split()
    refuse(plan, estimate(plan, store))


def test_the_refusal_names_what_fits(hourly: MakePlan, store: Store) -> None:
    plan = hourly("budget.node_hours=5.01")
    with pytest.raises(OverBudget) as caught:
        refuse(plan, estimate(plan, store))
    assert '--config arms="none recite" fits' in caught.value.fix
    assert "5.01 node-hours" in caught.value.expected
    refuse(hourly("budget.node_hours=5.01", "budget.exceeded=stop"), estimate(plan, store))  # runs until it is used up
    with pytest.raises(OverBudget, match="does not fit"):
        check_budget(plan)  # what the Snakefile calls before its first job


def test_what_is_used_and_stored_already_counts(hourly: MakePlan, store: Store) -> None:
    plan = hourly("budget.node_hours=9", "budget.disk_tb=1")
    before = needs(estimate(plan, store), estimate(plan, store).total())
    Filler(plan, store).fill(lambda job, step: job.arm in (None, "none"))
    ledger = store.root / "spent" / "mini"
    ledger.mkdir(parents=True)
    row = {"stage": "segment", "name": "none/seed0", "nodes": 1.0, "node_hours": 4.0, "aside": 0.0, "aside_bytes": 0}
    (ledger / "1-1.json").write_text(json.dumps(row | {"host": "elsewhere", "pid": 1, "ended": True}))
    priced = estimate(plan, store)
    after = needs(priced, priced.total())
    assert before["node_hours"] == pytest.approx(8, abs=1e-3)
    # two SFT steps are left at the model's price; RL steps have been measured, at two seconds
    assert after["node_hours"] == pytest.approx(4 + 2 * 2, abs=0.01), "what was really used, and what is left to do"
    assert judge(plan, priced).ok
    (ledger / "1-2.json").write_text(json.dumps(row | {"host": "elsewhere", "pid": 2, "ended": True}))
    assert not judge(plan, estimate(plan, store)).ok
    other = store.root / "step" / "0123456789abcdef"
    other.mkdir()
    (other / "big").write_bytes(b"0" * 50_000_000)
    more = estimate(plan, store)
    assert needs(more, more.total())["disk_tb"] - after["disk_tb"] == pytest.approx(50_000_000 / TB, rel=0.01)


def test_disk_too(hourly: MakePlan, store: Store) -> None:
    size = estimate(hourly(), store).model.step_bytes() / TB
    plan = hourly(f"budget.disk_tb={4.5 * size!r}")
    verdict = judge(plan, estimate(plan, store))
    assert verdict.fits == ["none", "recite"]
    assert set(verdict.misses["arm_c"]) == {"disk_tb"}


def test_the_command_says_it_and_fails(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = str(repository / "config/mini.yaml")
    words = ["plan", "--study", study, "--set", "budget.node_hours=1e-9"]
    runner = CliRunner()
    said = runner.invoke(app, words)
    assert isinstance(said.exception, UserError)
    assert "arms that fit: none" in said.output
    assert runner.invoke(app, [*words, "--set", "budget.exceeded=stop"]).exit_code == 0
    fine = runner.invoke(app, ["plan", "--configfile", study, "--json"])
    assert fine.exit_code == 0
    assert json.loads(fine.output)["budget"]["ok"]
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "results").exists()
