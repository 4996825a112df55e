"""Where rules go: resources of every size, and the sbatch line of every rule of every shipped study.

The lines are stored in `golden/`; `INTERNALIZE_WRITE_GOLDEN=1 pytest tests/cluster/test_placement.py` writes them anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from internalize.cluster.placement import Placing
from internalize.cluster.site import Site
from internalize.study import load_study
from internalize.study_parallel import Parallel
from internalize.workflow import Plan

submit_string = pytest.importorskip("snakemake_executor_plugin_slurm.submit_string")
utils = pytest.importorskip("snakemake_executor_plugin_slurm.utils")

GOLDEN = Path(__file__).with_name("golden")
STUDIES = sorted(
    path.name for path in (Path(__file__).parents[2] / "config").glob("*.yaml") if path.name != "mini.yaml"
)
RULE = re.compile(r"^rule (\w+):\n(.*?)(?=^rule |\Z)", re.M | re.S)


class Named(dict[str, Any]):
    """Resources as the executor sees them: by key and by attribute."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def rules(repository: Path) -> dict[str, str]:
    """Rule -> its text."""
    return {
        name: text
        for file in sorted((repository / "rules").glob("*.smk"))
        for name, text in RULE.findall(file.read_text())
    }


def line(resources: dict[str, Any], rule: str) -> str:
    """The sbatch line that the executor makes of a rule's resources."""
    job = SimpleNamespace(resources=Named(resources), threads=1, name=rule, is_group=lambda: False)
    params = {
        "run_uuid": "internalize_0",
        "slurm_logfile": f"logs/slurm/rule_{rule}/%j.log",
        "comment_str": f"rule_{rule}",
        "account": f"-A {resources['slurm_account']}" if "slurm_account" in resources else "",
        "partition": f"-p {resources['slurm_partition']}" if "slurm_partition" in resources else "",
        "workdir": None,
    }
    settings = SimpleNamespace(requeue=True, no_requeue=False, qos=None, reservation=None)
    made = submit_string.get_submit_command(job, params, settings=settings) + utils.set_gres_string(job)
    return " ".join(made.split())


def resolved(resources: dict[str, Any], **wildcards: str) -> dict[str, Any]:
    """Resources of one job."""
    named = SimpleNamespace(**wildcards)
    values = {key: value(named) if callable(value) else value for key, value in resources.items()}
    return {key: value for key, value in values.items() if value is not None}


def isambard(repository: Path) -> Site:
    site = Site.from_config(yaml.safe_load((repository / "profiles/slurm/sites/isambard-ai.yaml").read_text()))
    assert site is not None
    return site


@pytest.mark.parametrize("study", STUDIES)
def test_every_rule_of_a_shipped_study(study: str, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    monkeypatch.setenv("SBATCH_ACCOUNT", "project.account")
    plan = Plan(load_study(repository / "config" / study), repository, site=isambard(repository))
    made: dict[str, list[str]] = {}
    local = {"base"} if plan.fetches_base else set()  # fetched where Snakemake runs: never submitted
    for rule in sorted(rules(repository).keys() - local):
        asked = plan.resources(rule)
        for arm in plan.arms if any(callable(value) for value in asked.values()) else [""]:
            made.setdefault(line(resolved(asked, arm=arm), rule), []).append(f"{rule} {arm}".strip())
    text = "".join(f"# {', '.join(jobs)}\n{command}\n" for command, jobs in made.items())
    golden = GOLDEN / study.replace(".yaml", ".txt")
    if os.environ.get("INTERNALIZE_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert golden.exists(), f"{golden} is missing: write it with INTERNALIZE_WRITE_GOLDEN=1 and read it"
    assert text == golden.read_text()


def test_every_rule_asks_for_its_resources(repository: Path) -> None:
    for name, text in rules(repository).items():
        assert f'**plan.resources("{name}")' in text, f"rule {name} would run with Snakemake's defaults on a cluster"


SIZES = {
    "one GPU": ({}, 1, "--nodes=1 --cpus-per-task=72 --ntasks-per-node=1 --open-mode=append", "gpu:gh200:1"),
    "one node": ({"tensor": 4}, 1, "--nodes=1 --cpus-per-task=288 --ntasks-per-node=1 --exclusive", "gpu:gh200:4"),
    "half a node": ({"tensor": 2}, 1, "--nodes=1 --cpus-per-task=144 --ntasks-per-node=1 --open", "gpu:gh200:2"),
    "four nodes": ({"tensor": 4, "pipeline": 4}, 4, "--nodes=4 --cpus-per-task=288", "gpu:gh200:4"),
    "not a whole number of nodes": ({"tensor": 2, "data": 3}, 2, "--nodes=2 --cpus-per-task=288", "gpu:gh200:4"),
    "engines in turn with ranks": (
        {"tensor": 4, "pipeline": 4, "runtime": "ray", "placement": "colocated"},
        *(4, "--nodes=4", "gpu:gh200:4"),
    ),
    "engines beside ranks": ({"tensor": 4, "runtime": "ray", "engines": 12}, 4, "--nodes=4", "gpu:gh200:4"),
}


def arm(**parallel: Any) -> SimpleNamespace:
    return SimpleNamespace(parallel=Parallel(**parallel))


@pytest.mark.parametrize(("parallel", "nodes", "words", "gres"), SIZES.values(), ids=SIZES)
def test_an_arm_gets_the_nodes_that_its_ranks_need(parallel: dict[str, int], nodes: int, words: str, gres: str) -> None:
    asked = resolved(Placing(Site(), {"a": arm(**parallel)}).resources("segment"), arm="a")
    made = line(asked, "segment").replace("--requeue ", "")
    assert asked["nodes"] == nodes
    assert words in made.replace("-t 720 ", "").replace(f"--mem {asked['mem_mb']} ", "")
    assert f"--gres={gres}" in made
    assert "--ntasks-per-gpu" not in made
    assert "--signal=URG@600" in made


def test_arms_of_different_sizes_stand_side_by_side() -> None:
    arms = {"small": arm(), "large": arm(tensor=4, pipeline=4)}
    asked = Placing(Site(), arms).resources("segment")
    assert [resolved(asked, arm=name)["nodes"] for name in arms] == [1, 4]
    assert "--exclusive" not in resolved(asked, arm="small")["slurm_extra"]


def test_a_site_places_a_rule_elsewhere() -> None:
    site = Site.model_validate(
        {"rules": {"evals_base": {"placement": "node", "minutes": 30}, "gate": {"placement": "cpu"}}}
    )
    placing = Placing(site, {})
    node, cpu = placing.resources("evals_base"), placing.resources("gate")
    assert (node["gres"], node["runtime"], "--exclusive" in node["slurm_extra"]) == ("gpu:gh200:4", 30, True)
    assert "gres" not in cpu
    assert "mpi" not in cpu


def test_without_a_site_there_is_nothing() -> None:
    placing = Placing(None, {"a": SimpleNamespace()})
    assert [placing.resources(rule) for rule in ("knowledge", "segment")] == [{}, {}]
    assert placing.prefix() == ""


def test_site_specifics_reach_sbatch_and_the_job() -> None:
    site = Site.model_validate(
        {
            "reservation": "morning",
            "gpu": {"qos": "high", "constraint": "gh200&nvme", "extra": "--network=single_node_vni"},
            "setup": ["module load ${STACK}"],
            "container": {"gpu": "apptainer exec --nv train.sif"},
            "scratch": "/local/$USER",
        }
    )
    placing = Placing(site, {})
    made = line(placing.resources("gate"), "gate")
    for words in ("--qos=high", "-C 'gh200&nvme'", "--reservation=morning", "--network=single_node_vni"):
        assert words in made
    prefix = placing.prefix()
    assert prefix.startswith("set -e; module load ${{STACK}}; ")
    assert "--gpu-container 'apptainer exec --nv train.sif' --scratch '/local/$USER' -- internalize" in prefix
