"""The cost model of a study, and what its jobs are told of it.

Invariant: plan and running job price a step with the same model.
"""

from __future__ import annotations

import math
from pathlib import Path

from internalize.budget import Terms
from internalize.configfile import found
from internalize.costs.model import HOUR, HUB_BYTES, LOCAL_BYTES, CostModel, qwen3_parameters
from internalize.files import read_json
from internalize.study import Study
from internalize.study_arms import Arm
from internalize.study_base import HubBase
from internalize.workflow import Plan

ON_CPUS = ("fetch_game", "fetch_base", "knowledge", "base", "numerics", "rows", "report", "convert", "archive")
"""Stages that neither train nor play."""


def model_of(study: Study, repository: Path) -> CostModel:
    """The study's cost model, with the size of its base filled in.

    Raises:
        UserError: the shipped base is not there.
    """
    cost = study.cost
    given = cost.bytes_per_parameter
    per_parameter = given if given is not None else HUB_BYTES if isinstance(study.base, HubBase) else LOCAL_BYTES
    return CostModel(cost.plain(), cost.parameters or parameters_of(study, repository), per_parameter)


def parameters_of(study: Study, repository: Path) -> int:
    """Parameters of the base: stated (from the hub), or counted from the shipped base's config or the recipe.

    Raises:
        UserError: the shipped base is not there.
    """
    base = study.base
    if isinstance(base, HubBase):
        return base.parameters
    if base.prebuilt is not None:
        return qwen3_parameters(read_json(found(base.prebuilt, repository) / "config.json"))
    from internalize.games import make_game
    from internalize.language.vocabulary import Vocabulary

    words = len(Vocabulary.of(make_game(**study.game.plain()).words()))
    return qwen3_parameters(base.recipe.model_config_dict(words, 0, 0))


def terms_of(plan: Plan) -> Terms:
    """What the plan's jobs are told: the study, nodes a job, and under a budget its limits and prices."""
    study = plan.study
    nodes = {f"segment {arm.name}": nodes_of(arm, study) for arm in plan.arms.values()}
    cost = study.cost
    played = float(cost.play_nodes or cost.nodes)
    nodes |= dict.fromkeys(("gate", "harvest", "evals"), played)
    nodes |= dict.fromkeys(ON_CPUS, float(cost.cpu_nodes))
    if study.budget is None:
        return Terms(study.name, nodes=nodes)
    model = model_of(study, plan.repository)
    reserve = model.stage_seconds("report", {}) * cost.cpu_nodes
    for arm in plan.arms.values():
        measured = {"evals": study.evals.plain(), "steps": range(arm.steps)}
        reserve += len(arm.seeds) * model.stage_seconds("evals", measured) * played
    reserve += model.stage_seconds("evals", {"evals": study.evals.plain(), "steps": [-1]}) * played
    return Terms(study.name, study.budget.limits(), model.plain(), nodes, reserve / HOUR)


def nodes_of(arm: Arm, study: Study) -> float:
    """Nodes that a job of the arm holds: its GPUs over those of a node when it is parallel, else `cost.nodes`."""
    if arm.parallel.devices > 1 and study.cost.gpus_per_node:
        return float(math.ceil(arm.parallel.devices / study.cost.gpus_per_node))
    return float(study.cost.nodes)
