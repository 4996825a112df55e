"""The spec of every job: the settings that its stage reads, and nothing else.

Invariant: a spec holds no arm name, no receipt path and no setting that its stage leaves unread; a job is
rerun exactly when something changes that its result depends on.
"""

from __future__ import annotations

from typing import Any

from internalize.schedule import cite_weights, phases, resets, rollouts
from internalize.study import Study
from internalize.study_arms import Arm, SftJoint
from internalize.study_base import HubBase
from internalize.study_engine import for_spec as engine_spec
from internalize.study_games import ArcGame
from internalize.study_games import for_spec as game_spec
from internalize.study_parallel import Parallel

Spec = dict[str, Any]

BASE_STEP = -1
"""The base counts as the step before the first."""


def game(game: ArcGame) -> Spec:
    """The game and what it is pinned against, and a board of the user's own."""
    given = {**game.plain(), **game_spec(game)}
    kept = ("id", "sha256", "metadata_sha256", *(("board", "board_sha256") if game.board is not None else ()))
    return {key: given[key] for key in kept}


def knowledge(study: Study) -> Spec:
    """Game and knowledge settings."""
    return {"game": game_spec(study.game), "knowledge": study.knowledge.plain()}


def base(study: Study, prebuilt_digest: str | None) -> Spec:
    """Game, recipe, and the shipped base with its hash, so that another one is another job."""
    if isinstance(study.base, HubBase):
        return study.base.identity()
    settings: Spec = {"prebuilt": study.base.prebuilt, "recipe": study.base.recipe.plain()}
    if prebuilt_digest is not None:
        settings["prebuilt_digest"] = prebuilt_digest
    return {"game": game_spec(study.game), **settings}


def gate(study: Study) -> Spec:
    """Game and bounds; how a model with an open vocabulary samples (the tiny one's replies are a few words)."""
    spec: Spec = {"game": game_spec(study.game), "gate": study.base.gate.plain(), **engine_spec(study.engine)}
    if isinstance(study.base, HubBase):
        spec |= {"rollout": _sampling(study), **_context(study)}
    return spec


def harvest(study: Study, name: str) -> Spec:
    """Game, one harvest, levels and sampling."""
    return {
        "game": game_spec(study.game),
        "harvest": study.harvests[name].plain(),
        "levels": study.rollout.levels,
        "rollout": _sampling(study),
        **_context(study),
        **engine_spec(study.engine),
    }


def rows(study: Study, name: str) -> Spec:
    """Game and one row source; what is held out stands in the knowledge set."""
    return {"game": game_spec(study.game), "rows": study.rows[name].plain(), **_context(study)}


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
        "rollouts": rollouts(order)[part],
        "game": game_spec(study.game),
        "rollout": study.rollout.model_copy(update={"harness": arm.harness}).plain(),
        "guard": study.guard.plain(),
        **engine_spec(study.engine),
    }
    if reads_rows(arm, first, last):
        spec |= {"sft": arm.sft.plain(), "rows": arm.rows}
    if set(order[part]) != {"sft"}:
        spec["rl"] = arm.rl.plain()
    if isinstance(arm.schedule, SftJoint):
        spec["fraction"] = arm.schedule.fraction
    if study.diagnostics is not None:
        spec["diagnostics"] = study.diagnostics.plain()  # of the job, not of its steps
    if arm.parallel != Parallel():
        spec["parallel"] = {"decides": arm.parallel.decides(), "runs": arm.parallel.plain()}
    return spec


def evals(study: Study, steps: list[int]) -> Spec:
    """Game, eval settings, sampling and the steps to measure."""
    return {
        "game": game_spec(study.game),
        "evals": study.evals.plain(),
        "rollout": _sampling(study),
        "steps": steps,
        **_context(study),
        **engine_spec(study.engine),
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
    spec: Spec = {"name": study.name, "arms": told, "order": [arm.name for arm in arms]}
    return spec if study.reference is None else {**spec, "reference": study.reference}


def reads_rows(arm: Arm, first: int, last: int) -> bool:
    """Is there a step from `first` to `last` that trains on rows?"""
    return any(phase != "rl" for phase in phases(arm)[first : last + 1])


def _sampling(study: Study) -> Spec:
    return {"temperature": study.rollout.temperature, "max_new_tokens": study.rollout.max_new_tokens}


def _context(study: Study) -> Spec:
    """Most tokens of an episode, where the study says it."""
    return {} if study.rollout.max_context is None else {"max_context": study.rollout.max_context}


def _phrase(settings: Spec) -> str:
    """A schedule in a few words: `sft_first, steps 3`."""
    rest = [f"{key} {value}" for key, value in settings.items() if key != "type"]
    return ", ".join([settings["type"], *rest])
