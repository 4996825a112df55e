"""Which steps are converted and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from internalize.errors import StudyError
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
    assert Convert(steps=steps).chosen(PHASES, last) == chosen  # type: ignore[arg-type]


def test_a_warm_up_may_be_the_whole_arm() -> None:
    assert Convert(steps="warmup").chosen(["sft"] * 3, 2) == [0, 1, 2]
    assert Convert(steps="warmup").chosen(["rl", "sft"], 1) == []


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
    assert full.targets() == [*plain.targets(), *full.conversions()]
    arm = plain.arms["recite"]
    assert full.conversions()[-4:-2] == [f"results/receipts/convert/recite/seed0/step000{i}.json" for i in (0, 1)]
    from types import SimpleNamespace

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
