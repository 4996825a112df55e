"""Which steps are converted and kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from internalize.errors import StudyError
from internalize.inputs import segment_path
from internalize.schedule import own_steps
from internalize.study import load_study
from internalize.study_checkpoints import Convert, Retention
from internalize.workflow import Plan

PHASES = ["sft", "sft", "rl", "rl", "sft"]


@pytest.mark.parametrize(
    ("steps", "last", "chosen"),
    [
        ("last", 4, [4]),
        ("last", -1, []),
        ("all", 2, [0, 1, 2]),
        ("warmup", 4, [0, 1]),
        ("warmup", 0, [0]),
        ([3, 1, 9], 4, [1, 3]),
    ],
)
def test_steps_to_convert(steps: object, last: int, chosen: list[int]) -> None:
    assert Convert(steps=steps).chosen(range(last + 1), PHASES) == chosen  # type: ignore[arg-type]


def test_a_warm_up_may_be_the_whole_arm() -> None:
    assert Convert(steps="warmup").chosen(range(3), ["sft"] * 3) == [0, 1, 2]
    assert Convert(steps="warmup").chosen(range(2), ["rl", "sft"]) == []


def test_a_continuing_arm_converts_its_own_steps_only(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = "arms.further={continues: recite, schedule: {type: none}, steps: 2, note: goes on}"
    plan = Plan(load_study(repository / "config/mini.yaml", set=(more, "convert.steps=all")), repository)
    own = own_steps(plan.arms["further"])
    assert own.start == plan.arms["recite"].steps
    assert {seed: list(own) for seed in plan.arms["further"].seeds} == {
        seed: steps for (arm, seed), steps in plan.published().items() if arm == "further"
    }
    read = plan.convert_inputs(SimpleNamespace(arm="further", seed="0", step=f"{own.start:04d}"))
    assert read["segment"] == segment_path("further", 0, own.start, own.stop - 1)


def test_an_arm_that_the_budget_stopped_converts_what_it_has(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan(load_study(repository / "config/mini.yaml", set=("convert.steps=last",)), repository)
    monkeypatch.setattr(plan._segments, "budget_end", lambda arm, seed: 1 if arm.name == "recite" else None)
    assert plan.published()["recite", 0] == [1]
    read = plan.convert_inputs(SimpleNamespace(arm="recite", seed="0", step="0001"))
    assert read["segment"] == segment_path("recite", 0, 0, 1)


def test_retention_is_a_union_of_reasons() -> None:
    policy = Retention(keep_last=2, keep_every=3)
    steps = list(range(8))
    kept = {step: policy.kept(step, steps, [1]) for step in steps}
    assert {step for step, why in kept.items() if why} == {0, 1, 3, 6, 7}
    assert (kept[1], kept[3], kept[7]) == ("published", "every 3", "one of the last 2")
    assert not Retention(keep_last=1, keep_published=False).kept(1, steps, [1])


def test_both_are_off_by_default_and_part_of_no_step(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = Plan(load_study(repository / "config/mini.yaml"), repository)
    asked = ("convert={steps: all, dtype: keep, shard_gb: 0.5}", "retention={keep_last: 1}")
    full = Plan(load_study(repository / "config/mini.yaml", set=asked), repository)
    assert plain.conversions() == []
    assert set(full.targets()) == {*plain.targets(), *full.conversions()}
    arm = plain.arms["recite"]
    assert full.conversions()[-4:-2] == [f"results/receipts/convert/recite/seed0/step000{i}.json" for i in (0, 1)]
    wanted = SimpleNamespace(arm=arm.name, seed="0", first="0", last="1", step="0001")
    assert plain.spec("segment")(wanted) == full.spec("segment")(wanted)
    assert full.spec("convert")(wanted) == '{"dtype":"keep","shard_bytes":500000000}'
    inputs = full.convert_inputs(wanted)
    assert inputs["segment"] == "results/receipts/arms/recite/seed0/steps0000-0001/step0001.json"


@pytest.mark.parametrize(
    "wrong",
    ["convert.steps=some", "convert.dtype=int8", "convert.shard_gb=0", "retention.keep_last=0", "retention.keep=3"],
)
def test_wrong_settings_are_refused(repository: Path, wrong: str) -> None:
    with pytest.raises(StudyError):
        load_study(repository / "config/mini.yaml", set=[wrong])
