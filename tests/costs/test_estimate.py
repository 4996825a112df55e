"""What a plan costs: what is done costs nothing more, what is shared is paid once, means come before the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filler import STAGE_SECONDS, STEP_BYTES, STEP_SECONDS, Filler

from internalize.costs.estimate import MEAN, MEASURED, MODEL, Priced, critical_path, estimate
from internalize.costs.found import find_done
from internalize.costs.jobs import jobs_of
from internalize.costs.retention import kept
from internalize.costs.table import print_plan, report, rules_without_price
from internalize.costs.verdict import judge
from internalize.store import Store
from internalize.workflow import Plan

MakePlan = Callable[..., Plan]


def sources(priced: list[Priced], stage: str) -> set[str]:
    return {part.source for one in priced if one.job.stage == stage for part in one.parts}


def test_nothing_done_is_priced_by_the_model(make_plan: MakePlan, store: Store) -> None:
    priced = estimate(make_plan("arms.recite.steps=4"), store)
    total = priced.total()
    assert total.jobs == total.jobs_left == len(jobs_of(make_plan("arms.recite.steps=4")))
    assert sources(priced.priced, "segment") == {MODEL}
    assert total.done_node_hours == 0
    assert priced.by_arm()["recite"].peak_bytes == 4 * priced.model.step_bytes()
    steps = [part.seconds for one in priced.priced if one.job.arm == "recite" for part in one.parts if part.step >= 0]
    assert len(steps) == 4
    assert min(steps) > 0


def test_a_finished_study_has_nothing_left(make_plan: MakePlan, store: Store) -> None:
    plan = make_plan("arms.recite.steps=4")
    Filler(plan, store).fill()
    found = find_done(jobs_of(plan), plan, store)
    assert sorted(step for _, _, step in found.steps) == [0, 0, 1, 1, 2, 3]
    priced = estimate(plan, store)
    left = [one.job.rule for one in priced.priced if one.left]
    assert left == ["report", "archive", "page", "graphs"]  # no report in this store
    assert priced.by_arm()["recite"].jobs_left == 0
    assert priced.by_arm()["recite"].peak_bytes == 4 * STEP_BYTES + 1
    arm = priced.by_arm()["recite"]
    assert arm.done_node_hours == pytest.approx((4 * STEP_SECONDS + STAGE_SECONDS) * 0.5 / 3600)
    assert sources(priced.priced, "segment") == {MEASURED}


def test_the_same_whatever_receipts_lie_there_and_however_steps_are_cut(make_plan: MakePlan, store: Store) -> None:
    plan = make_plan("arms.recite.steps=4")
    Filler(plan, store).fill()
    for path in Path("results").rglob("*.json"):
        path.unlink()
    assert estimate(make_plan("arms.recite.steps=4", steps_per_job=1), store).by_arm()["recite"].jobs_left == 0


def test_a_half_done_arm_costs_its_other_half_at_the_mean(make_plan: MakePlan, store: Store) -> None:
    plan = make_plan("arms.recite.steps=6")
    Filler(plan, store).fill(lambda job, step: job.arm != "recite" or -1 < step < 3)
    priced = estimate(plan, store)
    (segment,) = [one for one in priced.priced if one.job.rule == "segment" and one.job.arm == "recite"]
    assert [part.done for part in segment.parts] == [True] * 3 + [False] * 3
    assert [part.source for part in segment.parts] == [MEASURED] * 3 + [MEAN] * 3
    assert {part.seconds for part in segment.parts} == {STEP_SECONDS}
    hours = (3 * STEP_SECONDS + segment.start) * 0.5 / 3600
    assert priced.total([segment]).node_hours == pytest.approx(hours)
    more = estimate(make_plan("arms.recite.steps=6", "rl.optimizer_steps=4"), store)
    (segment,) = [one for one in more.priced if one.job.rule == "segment" and one.job.arm == "recite"]
    assert [part.source for part in segment.parts][1:] == [MODEL] * 5, "another kind of step: no mean"


def test_other_settings_leave_the_arm_to_do(make_plan: MakePlan, store: Store) -> None:
    Filler(make_plan(), store).fill()
    priced = estimate(make_plan("arms.recite.rl.lr=3e-4"), store)
    assert priced.by_arm()["none"].jobs_left == 0
    (segment,) = [one for one in priced.priced if one.job.rule == "segment" and one.job.arm == "recite"]
    assert [part.done for part in segment.parts] == [True, False], "the SFT step does not read `rl`"


def test_a_step_that_two_arms_share_is_paid_once(make_plan: MakePlan, store: Store) -> None:
    twin = "arms.twin={rows: teacher_turns, steps: 2}"
    one = estimate(make_plan("arms.recite.steps=5"), store)
    two = estimate(make_plan("arms.recite.steps=5", twin, arms="none recite twin"), store)
    alone = one.by_stage()["segment"]
    both = two.by_stage()["segment"]
    assert both.peak_bytes == alone.peak_bytes
    assert both.node_hours == pytest.approx(alone.node_hours)
    assert two.by_arm()["twin"].node_hours > 0, "alone it would have to pay"


def test_the_critical_path_is_the_longest_chain(make_plan: MakePlan, store: Store) -> None:
    cost = [
        *("cost.queue_s=7", "cost.start_s=1", "cost.episode_s=0", "cost.optimizer_step_s=0.5"),
        *("cost.sft_optimizer_step_s=0.25", "cost.cpu_job_s=3", "cost.measure_s=0", "cost.write_gb_per_s=1e9"),
    ]
    plan = make_plan(*cost, "arms.none.steps=3", "arms.recite.steps=2", steps_per_job=1)
    priced = estimate(plan, store)
    jobs = {one.job.label: one.wall() for one in priced.priced}
    assert jobs["segment none seed 0, steps 0-0"] == pytest.approx(7 + 1 + 2 * 0.5)
    # nine jobs, each after a wait in the queue: knowledge, gate, three segments, evals, report, archive, page
    by_none = 3 + 1 + 3 * (1 + 2 * 0.5) + 1 + 3 * 3 + 9 * 7
    by_recite = (
        3 + 1 + 3 + (1 + 2 * 0.25) + (1 + 2 * 0.5) + 1 + 3 * 3 + 9 * 7
    )  # harvest and rows, then an SFT and an RL step
    assert critical_path(priced.priced) == pytest.approx(max(by_none, by_recite), abs=1e-6)
    assert critical_path(priced.jobs(["none"])) == pytest.approx(by_none, abs=1e-6)


def test_retention_counts_what_stays(make_plan: MakePlan, store: Store) -> None:
    class Policy:
        """As a study's `retention` says it."""

        def kept(self, step: int, steps: Any, published: Any) -> str:
            return "every 4" if step % 4 == 0 else "published" if step in published else ""

    assert kept(range(10), None) == set(range(10))
    assert kept(range(10), Policy(), [7]) == {0, 4, 7, 8, 9}
    plan = make_plan("arms.none.steps=10", arms="none")
    priced = estimate(plan, store)
    whole = priced.total()
    assert whole.kept_bytes == whole.peak_bytes
    cut = replace(priced, keep=Policy()).total()
    assert cut.peak_bytes == whole.peak_bytes
    assert cut.kept_bytes == whole.peak_bytes - 6 * priced.model.checkpoint_bytes()  # 0, 4, 8 and the last stay


def test_table_and_json_say_the_same(make_plan: MakePlan, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan()
    priced = estimate(plan, store)
    verdict = judge(plan, priced)
    said = json.loads(json.dumps(report(priced, verdict, [])))
    print_plan(priced, verdict, ["newcomer"])
    text = capsys.readouterr().out
    for name, part in said["arms"].items():
        (line,) = [line for line in text.splitlines() if f" {name} " in line]
        assert f"{part['jobs_left']} / {part['jobs']}" in line
        assert f"{part['files']}" in line
        assert "model" in line
    assert "342,432 parameters x 12 B" in text
    assert "rules without a price: newcomer" in text
    assert set(said["stages"]) == {one.job.stage for one in priced.priced}


def test_a_hub_base_at_laptop_prices_is_said(
    make_plan: MakePlan, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan()
    priced = replace(estimate(plan, store), laptop=True)
    print_plan(priced, judge(plan, priced), [])
    assert "the study states no `cost`" in capsys.readouterr().out
    assert not estimate(plan, store).laptop


def test_every_rule_of_the_repository_is_priced_or_named(
    make_plan: MakePlan, store: Store, repository: Path, tmp_path: Path
) -> None:
    priced = estimate(make_plan(), store)
    known = {one.job.rule for one in priced.priced}
    rules = tmp_path / "copy" / "rules"
    rules.mkdir(parents=True)
    (rules / "new.smk").write_text(
        "if True:\n\n    rule ship:\n        output: 'x'\n\nrule knowledge:\n    output: 'y'\n"
    )
    assert rules_without_price(tmp_path / "copy", priced) == ["ship"]
    assert {"knowledge", "base", "gate", "harvest", "rows", "segment", "evals", "evals_base", "report"} <= known
