"""Snakemake's command line, and what its dry run says."""

from __future__ import annotations

from pathlib import Path

import pytest

from internalize.control.drive import Driver, Listed, parse, profile_config
from internalize.errors import UserError

DRY_RUN = """Building DAG of jobs...
Job stats:
segment    1

[Mon Nov 30 09:12:26 2026]
rule segment:
    input: a.json, b.json
    output: results/receipts/arms/x/seed0/steps0000-0001/step0001.json
    log: logs/x.log
    jobid: 2
    wildcards: arm=x, seed=0, first=0000, last=0001
    resources: tmpdir=/tmp
[Mon Nov 30 09:12:26 2026]
localrule graphs:
    output: results/rulegraph.svg, results/dag.svg
    jobid: 3

rule all:
    input: x
Reasons:
    output files have to be generated:
        segment
"""


def test_jobs_of_a_dry_run() -> None:
    output = "results/receipts/arms/x/seed0/steps0000-0001/step0001.json"
    wildcards = {"arm": "x", "seed": "0", "first": "0000", "last": "0001"}
    assert parse(DRY_RUN) == [
        Listed("segment", output, wildcards),
        Listed("graphs", "results/rulegraph.svg", {}),
        Listed("all", "", {}),
    ]


def test_all_calls_share_their_words(repository: Path, work: Path) -> None:
    driver = Driver(repository, {"study": "s.yaml", "set": ["a=1", "b=2"]}, "local", ("--cores", "3"))
    line = driver.command("target", "--dry-run")
    assert line[3:5] == ["target", "--dry-run"]
    assert line[-5:] == ["--cores", "3", "--config", "study=s.yaml", "set=a=1 b=2"]
    assert line[line.index("--profile") + 1] == str(repository / "profiles" / "local")


def test_what_a_profile_sets(repository: Path, work: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    driver = Driver(repository, {}, str(mine))
    for text in ("cores: 1\nconfig: [steps_per_job=4, study=x.yaml]\n", "config: {steps_per_job: 4, study: x.yaml}\n"):
        (mine / "config.yaml").write_text(text)
        assert profile_config(driver.settings()) == {"steps_per_job": 4, "study": "x.yaml"}
    (mine / "config.yaml").write_text("")
    assert driver.settings() == {}
    with pytest.raises(UserError, match="no such profile"):
        Driver(repository, {}, "nowhere").command()
