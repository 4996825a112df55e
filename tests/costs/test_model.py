"""The arithmetic: sizes of checkpoints, seconds of steps, size of a base."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from internalize.costs.model import GIB, HUB_BYTES, CostModel, qwen3_parameters
from internalize.costs.terms import model_of, nodes_of, parameters_of
from internalize.study_base import HubBase
from internalize.study_cost import Budget, Cost
from internalize.study_parallel import Parallel
from internalize.workflow import Plan

RECORD_GIB = 351  # "351 GB each with optimizer state" in the record's index of 84 iterations (27.5 TiB in all)


def test_a_checkpoint_of_27_billion_parameters_is_the_records_351_gib() -> None:
    model = CostModel({}, 27_000_000_000, HUB_BYTES)
    assert HUB_BYTES == 2 + 4 + 8  # bf16 weights, float32 master, two float32 moments
    assert model.checkpoint_bytes() == 378_000_000_000
    assert model.checkpoint_bytes() / GIB == pytest.approx(RECORD_GIB, rel=0.005)  # 27 B is itself rounded
    # 77 complete iterations of 351 GiB are within the 27.5 TiB of all 84 directories
    assert 26.0 < 77 * model.checkpoint_bytes() / GIB / 1024 < 27.5


def test_parameters_are_counted_as_the_shipped_weights_hold_them(repository: Path) -> None:
    folder = repository / "prebuilt/dipwheel"
    raw = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    held = sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    assert qwen3_parameters(json.loads((folder / "config.json").read_text())) == held


def test_a_base_that_the_dag_trains_has_the_size_of_its_recipe(make_plan: Callable[..., Plan]) -> None:
    shipped, trained = make_plan(), make_plan("base.prebuilt=null")
    assert parameters_of(trained.study, trained.repository) == parameters_of(shipped.study, shipped.repository)


def test_a_base_from_the_hub_states_its_size(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan()
    hub = HubBase(type="hub", repo="a/b", parameters=27_000_000_000)
    study = plan.study.model_copy(update={"base": hub})
    model = model_of(study, plan.repository)
    assert (model.parameters, model.bytes_per_parameter) == (27_000_000_000, 14.0)
    stated = study.model_copy(update={"cost": Cost(parameters=7)})
    assert model_of(stated, plan.repository).parameters == 7


def test_the_examples_in_the_docs_are_valid(repository: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (repository / "docs" / "plan.md").read_text(), re.S)
    given = {key: value for block in blocks for key, value in yaml.safe_load(block).items()}
    record = Cost.model_validate(given["cost"])
    assert Budget.model_validate(given["budget"]).limits() == {"node_hours": 500, "disk_tb": 20}
    model = CostModel(record.plain(), 27_000_000_000, HUB_BYTES)
    spec = {"phase": "rl", "rollout": {"episodes": 32}, "rl": {"optimizer_steps": 8}}
    assert 900 < model.step_seconds(spec) < 1800, "a rollout takes between a quarter and half an hour"


def test_seconds_follow_the_settings() -> None:
    cost = Cost(episode_s=10.0, episodes_at_once=16, optimizer_step_s=3.0, sft_optimizer_step_s=2.0, start_s=100.0)
    model = CostModel(cost.plain() | {"write_gb_per_s": 1.0}, 1_000_000_000, 14.0)
    spec = {"phase": "rl", "rollout": {"episodes": 32}, "rl": {"optimizer_steps": 8}, "sft": {"optimizer_steps": 4}}
    assert model.step_seconds(spec) == 2 * 10 + 8 * 3 + 14
    assert model.step_seconds(spec | {"phase": "joint"}) == 2 * 10 + 8 * 3 + 14
    assert model.step_seconds(spec | {"phase": "sft"}) == 4 * 2 + 14
    assert model.stage_seconds("harvest", {"harvest": {"episodes": 17}}) == 100 + 2 * 10
    evals = {"evals": {"episodes": 16, "every": 3}, "steps": [0, 1, 2, 3]}
    assert model.stage_seconds("evals", evals) == pytest.approx(100 + 4 * cost.measure_s + 2 * 10)


def test_files_grow_with_the_ranks_that_write() -> None:
    model = CostModel(Cost().plain(), 1, 14.0)
    assert model.step_files(16) - model.step_files(1) == 15 * 2


@pytest.mark.parametrize(
    ("runtime", "placement", "nodes"), [("torchrun", "split", 4.0), ("ray", "colocated", 4.0), ("ray", "split", 8.0)]
)
def test_a_parallel_arm_holds_the_nodes_of_its_devices(
    make_plan: Callable[..., Plan], runtime: Any, placement: Any, nodes: float
) -> None:
    plan = make_plan("cost.nodes=3.0", "cost.gpus_per_node=4")
    plain = plan.arms["none"]
    parallel = Parallel(tensor=4, pipeline=4, runtime=runtime, placement=placement)
    spread = plain.model_copy(update={"parallel": parallel})
    assert nodes_of(plain, plan.study) == 3.0
    assert nodes_of(spread, plan.study) == nodes
