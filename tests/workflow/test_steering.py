"""Plan, rerun and budget on the real workflow: what they say is what Snakemake does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from workbench import ARMS, STUDY, Bench, check_out

from internalize.costs.estimate import estimate
from internalize.costs.found import find_done
from internalize.costs.jobs import jobs_of
from internalize.store import Store
from internalize.workflow import Plan

HEAVY = ("torch", "pandas", "transformers", "megatron", "matplotlib", "networkx", "numpy", "rich")


def internalize(bench: Bench, *words: str) -> tuple[int, str]:
    """Runs the command line in the bench's directory; exit status and all that it printed."""
    environment = os.environ | {
        "PYTHONPATH": str(bench.checkout / "src"),
        "PATH": os.pathsep.join([str(bench.checkout / "bin"), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "internalize.cli", *words]
    done = subprocess.run(
        command,
        cwd=bench.work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def jobs_in(text: str) -> list[tuple[str, str]]:
    """Rule and first output of each job that Snakemake printed, `all` left out."""
    found = re.findall(r"^(?:local)?rule (\w+):\n(?: {4}input: .*\n)? {4}output: ([^,\n]+)", text, re.M)
    return sorted(found)


def plan_of(bench: Bench, monkeypatch: pytest.MonkeyPatch, *settings: str, per_job: int | None = None) -> Plan:
    monkeypatch.chdir(bench.work)
    config = {"study": STUDY, "arms": ARMS, "set": " ".join(settings), "steps_per_job": per_job}
    return Plan.from_config({key: value for key, value in config.items() if value}, bench.checkout)


def test_the_plan_lists_snakemakes_jobs(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_out(repository, tmp_path / "checkout")
    (tmp_path / "work").mkdir()
    bench = Bench(tmp_path / "checkout", tmp_path / "work")
    settings = ("arms.recite.steps=5", "arms.none.seeds=[0,1]")
    config = (f"set={' '.join(settings)}", "steps_per_job=2")
    text = bench.run("--dry-run", "--quiet", "host", config=config)
    plan = plan_of(bench, monkeypatch, *settings, per_job=2)
    assert sorted((job.rule, job.output) for job in jobs_of(plan)) == jobs_in(text)


def test_a_finished_study_is_found_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(bench, monkeypatch)
    jobs = jobs_of(plan)
    found = find_done(jobs, plan, Store(bench.work / "store"))
    by_receipt = {"results/receipts/report.json", "results/receipts/archive.json", "results/rulegraph.svg"}
    by_receipt |= {"results/report/index.html"}
    assert {job.output for job in jobs} - set(found.jobs) == by_receipt
    assert estimate(plan).total().jobs_left == 0


def test_rerun_lists_what_runs_and_leaves_nothing_to_do(bench: Bench) -> None:
    study = ("--study", STUDY, "--arms", ARMS, "--profile", str(bench.checkout / "profiles/local"))
    wish = ("rerun", *study, "--arm", "recite", "--from", "1")
    before = {path: path.read_bytes() for path in bench.work.glob("results/receipts/**/*.json")}
    entries = bench.entries()
    status, said = internalize(bench, *wish, "--dry-run")
    assert status == 0, said
    lines = [line for line in said.splitlines() if not line.startswith("jobs: ")]
    assert "computes step 1;" in lines[0], "step 0 stays"
    assert "(measured)" in lines[0]
    assert bench.entries() == entries
    segment = "results/receipts/arms/recite/seed0/steps0000-0001/step0001.json"
    real = jobs_in(bench.run("--dry-run", "--quiet", "host", "--forcerun", segment))
    assert sorted(line.split()[0] for line in lines) == sorted(rule for rule, _ in real)
    status, text = internalize(bench, *wish, "--", "--printshellcmds")  # Snakemake's own words
    assert status == 0, text
    assert jobs_in(text) == real
    assert "computed again: 2 results, 2 of them came out the same" in text
    log = (bench.work / "logs/arms/recite/seed0/steps0000-0001.log").read_text().splitlines()
    assert ["already in the store" in line for line in log if " step " in line] == [True, False]
    assert {path: path.read_bytes() for path in before} == before
    assert bench.entries() == entries
    assert bench.planned() == set()


def test_only_one_step_runs_alone(bench: Bench) -> None:
    study = ("--study", STUDY, "--arms", ARMS, "--profile", str(bench.checkout / "profiles/local"))
    wish = ("rerun", *study, "--arm", "recite", "--from", "1", "--only")
    status, text = internalize(bench, *wish, "--", "--printshellcmds")  # Snakemake's own words
    assert status == 0, text
    assert [rule for rule, _ in jobs_in(text)] == ["segment"]
    assert "1 of them came out the same" in text
    assert bench.planned() == set()


def test_a_rerun_that_fails_puts_everything_back(bench: Bench) -> None:
    entries = bench.entries()
    receipts = {path: path.read_bytes() for path in bench.work.glob("results/receipts/**/*.json")}
    study = ("--study", STUDY, "--arms", ARMS, "--profile", str(bench.checkout / "profiles/local"))
    # Snakemake itself refuses: no such option
    status, text = internalize(bench, "rerun", *study, "--arm", "recite", "--", "--no-such-option")
    assert status != 0
    assert "put back, because they were not computed again: 3 results" in text
    assert bench.entries() == entries
    assert {path: path.read_bytes() for path in receipts} == receipts


def test_the_budget_stops_an_arm_and_lets_it_go_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    step = json.loads(next(bench.work.glob("results/receipts/arms/recite/seed0/*/step0001.json")).read_text())
    size = sum(file["bytes"] for file in step["files"])
    plan = plan_of(bench, monkeypatch)
    stored, entries = estimate(plan).stored, bench.entries()
    tight = f"budget.disk_tb={(stored + 1.5 * size) / 1e12!r} budget.exceeded=stop arms.recite.steps=4"
    refused = bench.snakemake(config=(f"set={tight.replace('stop', 'refuse')}",))
    assert refused[0] != 0
    assert "over budget" in refused[1]
    assert '--config arms="none" fits' in refused[1]
    assert bench.entries() == entries, "nothing was started"
    status, text = bench.snakemake(config=(f"set={tight}",))
    assert status != 0
    assert "stopped: budget: arm recite, seed 0: step 2 is its last" in text
    cut = plan_of(bench, monkeypatch, *tight.split())
    assert cut.segments_to_run(cut.arms["recite"], 0) == [(0, 2)]
    assert json.loads(cut.spec("evals")(SimpleNamespace(arm="recite", seed="0")))["steps"] == [0, 1, 2]
    report = json.loads(cut.spec("report")(None))
    assert "stopped: budget, after step 2 (seed 0)" in report["arms"]["recite"]["note"]
    assert estimate(cut).by_arm()["recite"].node_hours > 0, "its evals"
    other = plan_of(bench, monkeypatch, *tight.split(), "arms.recite.rl.lr=1e-3")
    assert other.segments_to_run(other.arms["recite"], 0) == [(0, 3)], "other settings: another arm"
    roomy = ("arms.recite.steps=4", "budget.disk_tb=1.0")
    whole = plan_of(bench, monkeypatch, *roomy)
    assert whole.targets() == plan_of(bench, monkeypatch, roomy[0]).targets()
    goes_on = estimate(whole)
    (segment,) = [one for one in goes_on.priced if one.job.rule == "segment" and one.job.arm == "recite"]
    assert [part.done for part in segment.parts] == [True, True, True, False]


def test_parsing_a_large_study_imports_nothing_heavy(repository: Path, tmp_path: Path) -> None:
    study = large_study(repository)
    (tmp_path / "large.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    code = (
        "import sys; from pathlib import Path; from internalize.workflow import Plan;"
        f"plan = Plan.from_config({{'study': 'large.yaml', 'steps_per_job': 1}}, Path({str(repository)!r}));"
        "from internalize.costs.terms import terms_of; terms_of(plan).export(); targets = plan.targets();"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules];"
        "from internalize.costs.jobs import jobs_of; jobs = jobs_of(plan);"
        "print(heavy, len(jobs), len({t for t in targets} - {j.output for j in jobs}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    # 2000 segments, 50 evals and that of the base, 7 row sets, 2 harvests, and one each of knowledge, base, gate,
    # numerics, report, archive, page and pictures; beside a job's first output: four gates, the archive's sums, one
    # picture
    assert done.stdout.split("]") == ["[", f" {2000 + 50 + 1 + 7 + 2 + 8} 6\n"]


def large_study(repository: Path) -> dict[str, object]:
    """50 arms of 40 steps over all schedules and rows of the bundled study."""
    study = yaml.safe_load((repository / "config/bundled.yaml").read_text())
    schedules = (
        {"type": "none"},
        {"type": "sft_first", "steps": 3},
        {"type": "sft_interleaved", "every": 2},
        {"type": "sft_joint", "fraction": 0.25},
        {"type": "sft_freq", "sft": 1, "of": 4},
    )
    rows = list(study["rows"])
    arms = {}
    for at in range(50):
        arm = {"schedule": schedules[at % 5], "steps": 40, "rl": {"lr": 1e-4 * (1 + at / 100)}}
        if at % 5:
            arm["rows"] = rows[at % len(rows)]
        arms[f"arm_{at:02d}"] = arm
    return {**study, "seeds": [0], "arms": arms}
