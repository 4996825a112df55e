"""A Ray cluster is started with a token of its own, spans the nodes of a job, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import internalize
from internalize.errors import UserError
from internalize.runtime import cluster


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="Ray is not installed") as error:
        cluster.connect(2)
    assert "internalize[cluster]" in error.value.fix


def test_the_environment_keeps_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    cluster.prepare_environment()
    token = os.environ["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    cluster.prepare_environment()
    assert os.environ["RAY_AUTH_TOKEN"] == token


SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do echo "$1" >> "$SRUN_LOG"; shift; done
exec "$@" --num-cpus=2
"""
DRIVER = """
import sys
from pathlib import Path
import ray  # as a package may that we import before: mode and token of now are what counts
from internalize.runtime import cluster
there = cluster.connect(2)
from internalize.runtime.placement import layout
from internalize.runtime.ray_workers import RayWorkers
print("nodes", sum(node["Alive"] for node in ray.nodes()))
workers = RayWorkers(layout(1, 1, "split", gpus=False), Path(sys.argv[1]), 2, 64)
print("ranks", len(workers.ranks.processes), "engines", len(workers.engines.names))
workers.close()
there.close()
print("folder", cluster.Path(there._folder).exists())
"""


@pytest.mark.slow
def test_it_spans_the_nodes_of_a_slurm_job(model: Path, tmp_path: Path) -> None:
    """`srun` is a stand-in that starts the other node's Ray on this machine."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    environment = os.environ | {
        "PATH": f"{srun.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(internalize.__file__).parents[1]),
        "SLURM_JOB_NUM_NODES": "2",
        "SRUN_LOG": str(tmp_path / "srun.log"),
        "HOME": str(home),
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(model)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert {"nodes 2", "ranks 1 engines 1", "folder False"} <= set(said)
    assert "--nodes=1" in (tmp_path / "srun.log").read_text()
    assert not list(home.iterdir())
