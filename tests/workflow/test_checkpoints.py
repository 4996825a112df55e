"""Checkpoints of a finished study: converted where the study asks for it, pruned without rerunning anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner
from workbench import STUDY, Bench

from internalize.checkpoints.safetensors import ModelRows
from internalize.cli import app
from internalize.receipts import read_receipt

CONVERT = ("set=convert.steps=warmup",)
ARCHIVE = {"archive.json"}  # follows whatever a study makes, where it is part of the workflow
MODEL = "convert/recite/seed0/step0000.json"


def test_asked_for_steps_become_model_folders(bench: Bench) -> None:
    assert bench.planned(config=CONVERT) - ARCHIVE == {MODEL}, "the pure RL arm has no warm-up"
    bench.run(config=CONVERT)
    receipt = read_receipt(bench.work / "results/receipts" / MODEL)
    assert (receipt.facts["step"], receipt.facts["phase"], receipt.facts["dtype"]) == (0, "sft", "bfloat16")
    with ModelRows(bench.work / "store" / receipt.entry) as rows:
        assert len(rows.slots) == receipt.facts["tensors"]
    assert bench.planned(config=CONVERT) == set()
    assert bench.planned() - ARCHIVE == set()


def test_pruned_checkpoints_rerun_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.work)
    prune = ["prune", "--study", str(bench.checkout / STUDY), "--set", "retention.keep_last=1"]
    monkeypatch.setenv("INTERNALIZE_HOME", str(bench.checkout))
    (bench.work / "prebuilt").symlink_to(bench.checkout / "prebuilt")
    done = CliRunner().invoke(app, prune)
    assert done.exit_code == 0, done.output
    assert done.output.count("delete ") == 2, done.output
    assert len(list(Path("store").glob("step/*/iter_0000000/pruned.json"))) == 2
    assert bench.planned() == set()
    # a job that reads the rest of a pruned step runs; one that reads its weights says how they come back
    old, new = "from __future__ import annotations\n", "from __future__ import annotations\n\nEDITED = 1\n"
    bench.edit("src/internalize/report/stage.py", old, new)
    assert bench.planned() - ARCHIVE == {"report.json"}
    bench.run()
    bench.edit("src/internalize/evals/stage.py", old, new)
    status, _ = bench.snakemake("results/receipts/evals/recite/seed0.json")
    assert status != 0
    log = (bench.work / "logs/evals/recite/seed0.log").read_text()
    assert "internalize rematerialise recite --seed 0 --step 0" in log
    done = CliRunner().invoke(app, ["rematerialise", "recite"])
    assert done.exit_code == 0, done.output
    bench.run("results/receipts/evals/recite/seed0.json")
