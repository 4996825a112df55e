"""The key `parallel`: absent from specs at its default, refused where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from internalize import specs
from internalize.arms.settings import step_settings
from internalize.errors import StudyError
from internalize.study import Study, load_study, resolved_arm
from internalize.study_parallel import Parallel
from internalize.workflow import Plan

MINI = "config/mini.yaml"


def study(repository: Path, *settings: str) -> Study:
    return load_study(repository / MINI, set=settings)


def specs_of(repository: Path, *settings: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec of the segment and of its last step."""
    loaded = study(repository, *settings)
    segment = specs.segment(loaded, resolved_arm(loaded, "recite"), 0, 0, 1)
    return segment, step_settings(segment, 1).spec


def test_the_default_stands_in_no_spec(repository: Path) -> None:
    plain = specs_of(repository)
    assert "parallel" not in plain[0]
    assert "parallel" not in plain[1]
    assert specs_of(repository, "arms.recite.parallel={tensor: 1, runtime: inline}") == plain


def test_a_step_depends_on_sizes_and_not_on_what_runs_them(repository: Path) -> None:
    plain = specs_of(repository)[1]
    one = specs_of(repository, "arms.recite.parallel={runtime: torchrun, recompute: full, retries: 5}")
    assert one[1] == plain, "one rank computes the same wherever it runs"
    assert one[0]["parallel"]["runs"]["runtime"] == "torchrun"
    two = specs_of(repository, "defaults.parallel={tensor: 2, runtime: torchrun}")[1]
    assert two == plain | {"parallel": {"tensor": 2}}
    half = specs_of(repository, "defaults.parallel={precision: bf16}")
    assert half[1] == plain | {"parallel": {"precision": "bf16"}}
    assert half[0]["parallel"]["runs"]["precision"] == "bf16"
    assert "precision" not in one[0]["parallel"]["runs"], "specs of older studies stay as they are"
    ray = specs_of(repository, "defaults.parallel={tensor: 2, runtime: torchrun}", "arms.recite.parallel.runtime=ray")
    assert ray[1] == plain | {"parallel": {"tensor": 2, "engines": 2}}, "an arm overrides key by key"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{tensor: 2}", ["runtime", "2 ranks", "torchrun"]),
        ("{engines: 2}", ["engines: 2", "ray"]),
        ("{sequence_parallel: true}", ["sequence_parallel: True", "`parallel.tensor` above 1"]),
        ("{data: 3, runtime: ray}", ["data: 3", "3 replicas do not divide the 4 episodes"]),
        ("{engines: 9, runtime: ray}", ["9 engines", "8 episodes"]),
        ("{tensors: 2}", ["tensors", "tensor"]),
        ("{tensor: 0}", ["tensor", "1"]),
        ("{data: 4, runtime: ray}", ["SFT batch of 2 turns"]),
    ],
)
def test_impossible_shapes_are_refused_by_key(repository: Path, given: str, words: list[str]) -> None:
    more = ("sft.batch_turns=2",) if "data: 4" in given else ()
    with pytest.raises(StudyError) as error:
        study(repository, f"arms.recite.parallel={given}", *more)
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("given", ["{pipeline: 2, runtime: ray}", "{tensor: 4, runtime: torchrun}"])
def test_sizes_must_divide_the_base(repository: Path, given: str) -> None:
    asked = f"arms.recite.parallel={given}"
    with pytest.raises(StudyError, match="does not divide the model's") as error:  # the shipped base: 3 layers, 2 kv
        Plan(study(repository, asked), repository)
    assert "arms.recite.parallel" in error.value.where
    with pytest.raises(StudyError, match="does not divide the model's"):  # one made by the recipe: known at once
        study(repository, asked, "base.prebuilt=null")
    Plan(study(repository, "arms.recite.parallel={tensor: 2, runtime: ray}"), repository)


def test_one_engine_a_rank_unless_told() -> None:
    assert Parallel(tensor=2, runtime="ray").engine_count == 2
    assert Parallel(tensor=2, runtime="ray", engines=5).engine_count == 5
    assert Parallel(tensor=2, runtime="torchrun").engine_count is None
