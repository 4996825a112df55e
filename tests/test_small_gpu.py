"""config/small-gpu.yaml loads, is planned and priced, and is dry-run whole."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from internalize import specs
from internalize.costs.estimate import estimate
from internalize.costs.jobs import jobs_of
from internalize.errors import StudyError
from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import Plan

STUDY = "config/small-gpu.yaml"


def test_it_is_planned_on_one_gpu(repository: Path, tmp_path: Path) -> None:
    study = load_study(repository / STUDY)
    plan = Plan(study, repository)
    assert all(arm.parallel.ranks == 1 for arm in plan.arms.values())
    gate = specs.gate(study)
    assert gate["engine"] == {"type": "sglang", "tensor": 1, "served_as": "slime-actor", "memory": 0.35}
    assert (gate["max_context"], gate["rollout"]["max_new_tokens"]) == (8192, 512)
    assert specs.base(study, None) == {"repo": "Qwen/Qwen3-0.6B", "revision": study.base.revision}
    assert len(jobs_of(plan)) > 30
    assert estimate(plan, Store(tmp_path / "store")).total().plain()


def test_a_hub_base_is_told_in_english(repository: Path) -> None:
    with pytest.raises(StudyError, match="open vocabulary"):
        load_study(repository / STUDY, set=["knowledge.wording=null"])


def test_the_dry_run_plans_every_rule(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "snakemake", "-n", "-s", str(repository / "Snakefile"), "--directory"]
    words = [*command, str(tmp_path), "--configfile", str(repository / STUDY)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    counted = Counter({name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", text, re.M)})
    expected = {"base": 1, "knowledge": 1, "gate": 1, "harvest": 2, "rows": 6, "segment": 14, "evals": 14, "report": 1}
    assert {name: counted[name] for name in expected} == expected
    assert "fetch_game" not in counted
