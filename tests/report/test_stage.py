"""The report stage: files, figures, and a summary that holds the values of the metrics."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from internalize.report import stage

DOT = """digraph snakemake_dag {
    0[label = "report", color = "0.1 0.6 0.85", style="rounded"];
    1[label = "segment", color = "0.1 0.6 0.85", style="rounded,dashed"];
    1 -> 0
    1 -> 1
}"""


@pytest.fixture(scope="module")
def built(module_study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("payload")
    spec = module_study.spec(rulegraph=DOT, dag=DOT)
    facts = stage.build(folder, spec, module_study.inputs, lambda text: None)
    return folder, facts


def test_facts(built):
    _, facts = built
    assert facts == {
        "arms": ["none", "recite", "idle", "broken"],
        "stopped": ["broken"],
        "inside_noise": ["broken", "idle"],
        "improved_by_rl": [],
    }


def test_files(built):
    folder, _ = built
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        *("summary.md", "summary.csv", "rulegraph.svg", "dag.svg"),
        *("forest.png", "trajectories.png", "recital.png", "knowledge.png"),
        *(f"tables/{name}.csv" for name in ("sft_only", "trajectories", "final", "knowledge", "behaviour")),
    }


@pytest.mark.parametrize("name", ["forest", "trajectories", "recital", "knowledge"])
def test_figures_are_drawn(built, name):
    with Image.open(built[0] / f"{name}.png") as image:
        width, height = image.size
        pixels = np.asarray(image.convert("RGB"))
    assert 900 <= width <= 2000
    assert 300 <= height <= 2400
    painted = (pixels != 255).any(axis=2)
    assert 0.01 < painted.mean() < 0.7
    for part in (
        painted[: height // 2],
        painted[height // 2 :],
        painted[:, : width // 2],
        painted[:, width // 2 :],
    ):
        assert part.any()
    # the figures' blue marks something in each of them
    assert (np.abs(pixels.astype(int) - (0, 0x72, 0xB2)).sum(axis=2) < 40).sum() > 20


def test_the_summary_says_what_happened(built):
    text = (built[0] / "summary.md").read_text()
    assert "trained from scratch by this study; the study asks for training" in text
    assert "clears 380/384 (99 %) [97 %, 100 %], return +0.96" in text
    assert "held out of every training row: `wipe@S`" in text
    assert "| recite | after 2 SFT steps | +0.70 [" in text
    assert "25/32 (78 %)" in text
    assert "Inside the noise of `none`: `idle`, `broken`. 3 comparisons at 95 %: expect 0.2 outside by chance." in text
    first, second, _ = (line for line in text.splitlines() if line.startswith("| idle |") and "in" in line[8:])
    assert "-0.15 [" in first
    assert "+0.00 [+0.00, +0.00] (inside the noise)" in second
    assert "negative; stopped: seed 0 at step 1: 60.0% of the episodes end with a text answer (limit 50%)" in text
    assert "| recite | 0.40 / 0.20 |" in text
    assert "![" in text
    assert "CPU" not in text  # times are added outside the payload


def test_the_summary_holds_the_tables_values(built):
    folder, _ = built
    with (folder / "summary.csv").open() as handle:
        rows = {row["arm"]: row for row in csv.DictReader(handle)}
    with (folder / "tables" / "sft_only.csv").open() as handle:
        full = {row["arm"]: row for row in csv.DictReader(handle)}
    for arm, row in rows.items():
        assert row["sft_only_rollout_return"] == full[arm]["rollout_return"]
        assert row["sft_only_eval_diff_noise"] == full[arm]["eval_diff_noise"]
    assert float(rows["recite"]["sft_only_eval_return"]) == pytest.approx(0.7375)
    assert rows["broken"]["sft_only_rollout_return"] == ""


def test_twice_is_equal_byte_for_byte(module_study, built, tmp_path):
    again = tmp_path
    stage.build(again, module_study.spec(rulegraph=DOT, dag=DOT), module_study.inputs, lambda text: None)
    for path in built[0].rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (again / path.relative_to(built[0])).read_bytes(), path.name


def test_a_study_without_results_still_reports(synthetic, tmp_path):
    made = synthetic()
    made.arm("none", ["rl"])
    folder = tmp_path / "payload"
    folder.mkdir()
    facts = stage.build(folder, made.spec(), {}, lambda text: None)
    assert facts["stopped"] == []
    assert "No RL step was run." in (folder / "summary.md").read_text()


def test_no_torch():
    modules = ", ".join(f"internalize.report.{name}" for name in ("stage", "console", "publish"))
    code = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
