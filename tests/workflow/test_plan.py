"""The plan: segments, early stop, wildcards."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from internalize import specs
from internalize.arms.settings import step_settings
from internalize.errors import UserError
from internalize.inputs import segment_path
from internalize.study import load_study, resolved_arm
from internalize.workflow import RECEIPTS, Plan

STEPS = 6


@pytest.fixture
def plan(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The mini study with a six-step arm, two steps a job."""
    monkeypatch.chdir(tmp_path)
    study = load_study(repository / "config/mini.yaml", set=[f"arms.recite.steps={STEPS}"])
    return Plan(study, repository, steps_per_job=2)


def write(plan: Plan, first: int, last: int, status: str, **changes: object) -> None:
    """A receipt of a segment's last step."""
    arm = plan.arms["recite"]
    spec = step_settings(specs.segment(plan.study, arm, 0, first, last), last).spec
    path = Path(segment_path("recite", 0, first, last))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {"status": status, "spec": spec, "code": plan.code("segment"), "facts": {"stopped_at": last}, **changes}
        )
    )


def test_segments_cover_the_steps_once(repository: Path) -> None:
    study = load_study(repository / "config/mini.yaml")
    for steps in range(2, 9):
        arm = resolved_arm(study, "recite").model_copy(update={"steps": steps})
        for size in (None, *range(1, 10)):
            segments = Plan(study, repository, size).segments(arm)
            assert [step for first, last in segments for step in range(first, last + 1)] == list(range(steps))


def test_an_arm_ends_where_the_guard_stopped_it(plan: Plan) -> None:
    arm = plan.arms["recite"]
    write(plan, 0, 1, "done")
    write(plan, 2, 3, "stopped")
    assert plan.segments_to_run(arm, 0) == [(0, 1), (2, 3)]
    assert plan.segments_to_run(arm, 1) == [(0, 1), (2, 3), (4, 5)], "the other seed goes on"
    inputs = plan.evals_inputs(SimpleNamespace(arm="recite", seed="0"))
    assert [Path(path).stem for path in inputs["segments"]] == ["step0001", "step0003"]
    assert json.loads(plan.spec("evals")(SimpleNamespace(arm="recite", seed="0")))["steps"] == [0, 1, 2, 3]


def test_a_stop_under_other_settings_or_code_does_not_count(plan: Plan) -> None:
    arm = plan.arms["recite"]
    for changes in ({"spec": {"seed": 9}}, {"code": "0" * 16}):
        write(plan, 2, 3, "stopped", **changes)
        assert plan.segments_to_run(arm, 0) == plan.segments(arm)


def test_a_stop_that_was_passed_through_keeps_the_finished_plan(plan: Plan) -> None:
    write(plan, 2, 3, "stopped")
    write(plan, 4, 5, "stopped")
    assert plan.segments_to_run(plan.arms["recite"], 0) == plan.segments(plan.arms["recite"])


def test_a_longer_arm_asks_the_same_of_its_first_steps(plan: Plan) -> None:
    arm = plan.arms["recite"]
    longer = arm.model_copy(update={"steps": STEPS + 4})
    for step in range(STEPS):
        short_spec = step_settings(specs.segment(plan.study, arm, 0, 0, STEPS - 1), step).spec
        assert step_settings(specs.segment(plan.study, longer, 0, 0, STEPS + 3), step).spec == short_spec
        assert step_settings(specs.segment(plan.study, arm, 0, step, step), step).spec == short_spec


def test_a_segment_that_the_arm_lacks_is_named(plan: Plan) -> None:
    with pytest.raises(UserError, match="no segment of steps 1 to 3"):
        plan.segment_inputs(SimpleNamespace(arm="recite", seed="0", first="0001", last="0003"))


def test_an_rl_segment_reads_no_rows(plan: Plan) -> None:
    first = plan.segment_inputs(SimpleNamespace(arm="recite", seed="0", first="0000", last="0001"))
    later = plan.segment_inputs(SimpleNamespace(arm="recite", seed="0", first="0002", last="0003"))
    assert first["rows"] == [f"{RECEIPTS}/rows/teacher_turns.json"]
    assert (first["previous"], later["rows"]) == ([], [])
    assert later["previous"] == [segment_path("recite", 0, 0, 1)]


def test_no_arm_with_a_status_that_is_run_is_an_error(repository: Path) -> None:
    study = load_study(repository / "config/mini.yaml", set=["run=[negative]"])
    with pytest.raises(UserError, match="no arm to run"):
        Plan(study, repository)


def test_a_prepared_arm_is_run_when_it_is_named(repository: Path) -> None:
    prepared = ["arms.none.status=prepared"]
    assert "none" not in Plan(load_study(repository / "config/mini.yaml", set=prepared), repository).arms
    assert list(Plan(load_study(repository / "config/mini.yaml", arms="none", set=prepared), repository).arms) == [
        "none"
    ]
