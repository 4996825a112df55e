from __future__ import annotations

from pathlib import Path

import pytest

from internalize.runtime.cluster import commands
from internalize.runtime.failures import WorkerLost
from internalize.runtime.placement import layout
from internalize.runtime.torchrun import command


def test_split_gives_each_process_a_device_and_ranks_fill_nodes() -> None:
    plan = layout(4, 4, "split", gpus=True)
    assert plan.bundles == [{"CPU": 1.0, "GPU": 1.0}] * 8
    nodes = ["b", "a", "b", "a", "a", "b", "a", "b"]  # as Ray happened to place the bundles
    ranks, engines = plan.assign(nodes)
    assert [nodes[i] for i in ranks] == ["a"] * 4
    assert [nodes[i] for i in engines] == ["b"] * 4
    assert sorted(ranks + engines) == list(range(8))


def test_colocated_pairs_an_engine_with_a_rank_on_every_device() -> None:
    plan = layout(16, 16, "colocated", gpus=True)
    assert len(plan.bundles) == 16
    assert plan.rank["GPU"] + plan.engine["GPU"] == plan.bundles[0]["GPU"] == 1.0
    ranks, engines = plan.assign([f"node{i % 4}" for i in range(16)])
    assert ranks == engines
    nodes = [f"node{i % 4}" for i in ranks]
    assert all(len(set(nodes[k : k + 4])) == 1 for k in range(0, 16, 4)), "a tensor-parallel group of 4 has one node"


def test_without_gpus_a_device_is_a_cpu() -> None:
    assert layout(2, 1, "split", gpus=False).bundles == [{"CPU": 1.0}] * 3


def test_torchrun_on_several_nodes_goes_through_srun() -> None:
    assert "--standalone" in command(4, 1, "127.0.0.1")
    words = command(16, 4, "node-a")
    assert words[:3] == ["srun", "--nodes=4", "--ntasks-per-node=1"]
    assert {"--nnodes=4", "--nproc-per-node=4", "--rdzv-backend=c10d"} <= set(words)
    assert words[-2:] == ["-m", "internalize.runtime.launch"]
    with pytest.raises(WorkerLost, match="evenly"):
        command(6, 4, "node-a")


def test_ray_over_a_slurm_job_has_one_head_and_a_worker_on_each_other_node(tmp_path: Path) -> None:
    head, workers = commands(4, "node-a", "10.0.0.1:6379", tmp_path)
    assert {"--head", "--port=6379", "--node-ip-address=10.0.0.1", "--disable-usage-stats", "--block"} <= set(head)
    assert {"srun", "--nodes=3", "--exclude=node-a", "--address=10.0.0.1:6379"} <= set(workers)
