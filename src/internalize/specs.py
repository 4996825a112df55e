"""The spec of every job: the settings that its stage reads, and nothing else.

Invariant: a spec holds no arm name, no receipt path and no setting that its stage leaves unread; a job is
rerun exactly when something changes that its result depends on.
"""

from __future__ import annotations

from typing import Any

from internalize.schedule import cite_weights, phases, resets
from internalize.study import Study
from internalize.study_arms import Arm, SftJoint
from internalize.study_parallel import Parallel

Spec = dict[str, Any]

BASE_STEP = -1
"""The base counts as the step before the first."""


def knowledge(study: Study) -> Spec:
    """Game and knowledge settings."""
    return {"game": study.game.plain(), "knowledge": study.knowledge.plain()}


def base(study: Study, prebuilt_digest: str | None) -> Spec:
    """Game, recipe, and the shipped base with its hash, so that another one is another job."""
    settings: Spec = {"prebuilt": study.base.prebuilt, "recipe": study.base.recipe.plain()}
    if prebuilt_digest is not None:
        settings["prebuilt_digest"] = prebuilt_digest
    return {"game": study.game.plain(), **settings}


def gate(study: Study) -> Spec:
    """Game and bounds."""
    return {"game": study.game.plain(), "gate": study.base.gate.plain()}


def harvest(study: Study, name: str) -> Spec:
    """Game, one harvest, levels and sampling."""
    return {
        "game": study.game.plain(),
        "harvest": study.harvests[name].plain(),
        "levels": study.rollout.levels,
        "rollout": _sampling(study),
    }


def rows(study: Study, name: str) -> Spec:
    """Game and one row source; what is held out stands in the knowledge set."""
    return {"game": study.game.plain(), "rows": study.rows[name].plain()}


def segment(study: Study, arm: Arm, seed: int, first: int, last: int) -> Spec:
    """Everything that determines steps `first` to `last`; `arms.settings` cuts each step's spec out of it."""
    order = phases(arm)
    part = slice(first, last + 1)
    spec: Spec = {
        "seed": seed,
        "first": first,
        "last": last,
        "phases": order[part],
        "resets": resets(order, arm.rl.frozen_adam)[part],
        "cite_weights": cite_weights(arm)[part],
        "game": study.game.plain(),
        "rollout": study.rollout.plain(),
        "guard": study.guard.plain(),
    }
    if reads_rows(arm, first, last):
        spec |= {"sft": arm.sft.plain(), "rows": arm.rows}
    if set(order[part]) != {"sft"}:
        spec["rl"] = arm.rl.plain()
    if isinstance(arm.schedule, SftJoint):
        spec["fraction"] = arm.schedule.fraction
    if arm.parallel != Parallel():
        spec["parallel"] = {"decides": arm.parallel.decides(), "runs": arm.parallel.plain()}
    return spec


def evals(study: Study, steps: list[int]) -> Spec:
    """Game, eval settings, sampling and the steps to measure."""
    return {
        "game": study.game.plain(),
        "evals": study.evals.plain(),
        "rollout": _sampling(study),
        "steps": steps,
    }


def report(study: Study, arms: list[Arm]) -> Spec:
    """What the report says about the arms besides their results."""
    told = {
        arm.name: {
            "phases": phases(arm),
            "seeds": arm.seeds,
            "schedule": _phrase(arm.schedule.plain()),
            "rows": ", ".join(arm.rows),
            "note": arm.note,
            "status": arm.status,
        }
        for arm in arms
    }
    # canonical JSON sorts keys, so the order of the study file is said apart
    return {"name": study.name, "arms": told, "order": [arm.name for arm in arms]}


def reads_rows(arm: Arm, first: int, last: int) -> bool:
    """Is there a step from `first` to `last` that trains on rows?"""
    return any(phase != "rl" for phase in phases(arm)[first : last + 1])


def _sampling(study: Study) -> Spec:
    return {"temperature": study.rollout.temperature, "max_new_tokens": study.rollout.max_new_tokens}


def _phrase(settings: Spec) -> str:
    """A schedule in a few words: `sft_first, steps 3`."""
    rest = [f"{key} {value}" for key, value in settings.items() if key != "type"]
    return ", ".join([settings["type"], *rest])
