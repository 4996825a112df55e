"""The whole study through `snakemake --profile slurm`: every rule a Slurm job, training on all sixteen GPUs, and every
byte as in the local run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml
from cases import SETTINGS, Case
from workbench import Bench

from internalize.cluster.sandbox import Sandbox
from internalize.files import read_json, sha256_file


def receipts(work: Path) -> dict[str, bytes]:
    folder = work / "results" / "receipts"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.json")}


def test_the_whole_study_on_the_cluster_equals_the_local_run(box: Sandbox, undisturbed: Bench, tmp_path: Path) -> None:
    settings = yaml.safe_load(box.site.read_text())
    settings["site"]["rules"] = {
        **{rule: {"nodes": 4} for rule in ("gate", "segment", "evals")},
        "evals_base": {"placement": "node"},
    }
    settings["site"]["setup"] = ["export FROM_THE_SITE=${HOME:+yes}"]
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(settings))
    work = (tmp_path / "work").resolve()
    work.mkdir()
    case = Case(box, undisturbed, work, undisturbed.checkout / "profiles/slurm", tmp_path / "site.yaml")
    command = [
        *(sys.executable, "-m", "snakemake", "-s", str(undisturbed.checkout / "Snakefile")),
        *("--profile", str(case.profile), "--configfile", str(case.site), "--directory", str(work)),
        *("--jobs", "4", "--latency-wait", "10", "--retries", "0", "--slurm-keep-successful-logs"),
        *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"),
    ]
    done = subprocess.run(
        [*command, "--config", *SETTINGS], cwd=work, env=case.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr + case.said()
    assert receipts(work) == receipts(undisturbed.work)
    for path in (work / "results" / "receipts").rglob("*.json"):
        receipt = read_json(path)
        for file in receipt["files"]:
            assert sha256_file(work / "store" / receipt["entry"] / file["path"]) == file["sha256"]
    shown = box.run("squeue", "-h", "-t", "all", "-o", "%Z|%k|%P|%D|%b|%C|%T").splitlines()
    jobs = {line.split("|")[1].split("_wildcards")[0]: line.split("|")[2:] for line in shown if str(work) in line}
    cpu, four = ["cpu", "1", "N/A", "2", "COMPLETED"], ["gpu", "4", "gres:gpu:gh200:4", "1152", "COMPLETED"]
    assert jobs == {
        **dict.fromkeys(jobs, cpu),  # all others
        **dict.fromkeys(("rule_gate", "rule_segment", "rule_evals"), four),
        "rule_evals_base": ["gpu", "1", "gres:gpu:gh200:4", "288", "COMPLETED"],
        "rule_harvest": ["gpu", "1", "gres:gpu:gh200:1", "72", "COMPLETED"],
    }
    assert {"rule_knowledge", "rule_base", "rule_rows", "rule_report", "rule_graphs"} <= set(jobs)
    assert "node1, node2, node3, node4; 4 GPUs a node" in case.said()
    again = subprocess.run(
        [*command, "--dry-run", "--config", *SETTINGS], cwd=work, env=case.environment(), capture_output=True, text=True
    )
    assert "Nothing to be done" in again.stdout + again.stderr
    local = undisturbed.planned("--directory", str(work), arms=None, config=SETTINGS)
    assert local == set(), "what the cluster has made is finished for a laptop too"
