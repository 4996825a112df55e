"""The harness of a stage: named where it is wanted, and no trace of it where it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from internalize.errors import StudyError
from internalize.harness.choose import NAMES
from internalize.study import Study, load_study
from internalize.study_harness import ClaudeCodeHarness, InProcessHarness, QwenCodeHarness
from internalize.workflow import Plan

AGENT = {"type": "claude-code", "parallel": 3, "seconds": 90.0}
PLACES = ("rollout", "evals", "harvests.own", "harvests.teacher")


def _specs(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Every spec of a study, by job."""
    shared = SimpleNamespace()
    for job in ("knowledge", "base", "gate", "evals_base", "report"):
        yield job, plan.spec(job)(shared)
    for name in plan.study.harvests:
        yield f"harvest {name}", plan.spec("harvest")(SimpleNamespace(harvest=name))
    for name in plan.study.rows:
        yield f"rows {name}", plan.spec("rows")(SimpleNamespace(rows=name))
    for arm in plan.arms.values():
        for first, last in plan.segments(arm):
            at = SimpleNamespace(arm=arm.name, seed=arm.seeds[0], first=first, last=last)
            yield f"segment {arm.name}", plan.spec("segment")(at)
        yield f"evals {arm.name}", plan.spec("evals")(SimpleNamespace(arm=arm.name, seed=arm.seeds[0]))


def _plan(repository: Path, *settings: str, name: str = "mini") -> Plan:
    return Plan(load_study(repository / f"config/{name}.yaml", set=settings), repository)


@pytest.mark.parametrize("name", ["bundled", "mini"])
def test_the_default_leaves_no_trace(repository: Path, name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Studies from before this key have the specs that they had: no store key changes."""
    monkeypatch.chdir(tmp_path)
    expected = dict(_specs(_plan(repository, name=name)))
    assert not [job for job, spec in expected.items() if "harness" in spec]
    for harness in ("{type: inprocess}", "null"):
        said = [f"{place}.harness={harness}" for place in PLACES]
        assert dict(_specs(_plan(repository, *said, name=name))) == expected


@pytest.mark.parametrize(
    ("place", "jobs"),
    [
        ("rollout", {"segment none", "segment recite", "segment arm_c"}),
        ("evals", {"evals none", "evals recite", "evals arm_c", "evals_base"}),
        ("harvests.own", {"harvest own"}),
    ],
)
def test_an_agent_changes_the_jobs_that_it_plays_in(
    repository: Path, place: str, jobs: set[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    plain, plan = _plan(repository), _plan(repository, f"{place}.harness={json.dumps(AGENT)}")
    before, after = dict(_specs(plain)), dict(_specs(plan))
    assert {job for job in after if after[job] != before[job]} == jobs
    key = place.split(".")[0].removesuffix("s") if place.startswith("harvests") else place
    assert all(json.loads(after[job])[key]["harness"] == AGENT for job in jobs)
    stage = {"rollout": "segment", "evals": "evals"}.get(place, "harvest")
    changed = {s for s in ("knowledge", "gate", "harvest", "segment", "evals") if plan.code(s) != plain.code(s)}
    assert changed == {stage}, "the code that drives agents counts where agents play, and nowhere else"


def test_settings_are_complete_and_round_trip(repository: Path) -> None:
    study = load_study(repository / "config/mini.yaml", set=["rollout.harness={type: qwen-code}"])
    assert study.rollout.plain()["harness"] == {"type": "qwen-code", "parallel": 2, "seconds": 600.0}
    assert Study.model_validate(study.plain()) == study
    later = load_study(
        repository / "config/mini.yaml", set=["rollout.harness={type: qwen-code}", "rollout.harness.parallel=4"]
    )
    assert later.rollout.harness == QwenCodeHarness(type="qwen-code", parallel=4)


def test_the_study_names_the_harnesses_that_there_are() -> None:
    kinds = (InProcessHarness, ClaudeCodeHarness, QwenCodeHarness)
    assert tuple(get_args(kind.model_fields["type"].annotation)[0] for kind in kinds) == NAMES


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("rollout.harness={type: claude}", "did you mean `claude-code`?"),
        ("evals.harness={type: qwen-code, paralel: 2}", "did you mean `parallel`?"),
        ("harvests.own.harness={type: inprocess, parallel: 2}", "unknown key `parallel`"),
        ("rollout.harness={type: claude-code, seconds: 0}", "greater than 0"),
        ("rollout.harness={type: claude-code, parallel: 0}", "greater than or equal to 1"),
        ("evals.harness={parallel: 2}", "add `type`"),
    ],
)
def test_what_is_wrong_is_named(repository: Path, setting: str, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        load_study(repository / "config/mini.yaml", set=[setting])
    assert words in str(caught.value)
