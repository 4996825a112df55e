"""Report stage: tables, figures and the summary of a study.

Invariant: the payload is a function of its inputs' payloads and facts; two runs of one study write equal
files. What differs from run to run (times) is added by `report.publish`, outside the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.files import write_text
from internalize.report import dag, figures, summary, tables
from internalize.report.data import StudyData, load
from internalize.store import Input


def build(
    folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Writes summary.md, summary.csv, tables/*.csv, the figures and, given their text, rulegraph.svg and
    dag.svg.

    Args:
        spec: `name`; `arms` {name: {phases, seeds, schedule, rows, note, status}} in the order of the study
            file; `reference` (default `none`); optionally `rulegraph` and `dag`: the output of snakemake
            --rulegraph and --dag.
        inputs: see `report.data`.

    Returns:
        Facts: arms, stopped arms, arms inside the noise, arms that RL improved.
    """
    data = load(spec, inputs)
    made = {
        "sft_only": tables.sft_only(data),
        "trajectories": tables.trajectories(data),
        "final": tables.final(data),
        "knowledge": tables.knowledge(data),
        "behaviour": tables.behaviour(data),
    }
    progress("report: drawing")
    draw(folder, data, made)
    for name in ("rulegraph", "dag"):
        if spec.get(name):
            dag.draw(spec[name], folder / f"{name}.svg", {"rulegraph": "Rules", "dag": "Jobs"}[name])
    pictures = sorted(path.name for path in folder.iterdir() if path.suffix in (".png", ".svg"))
    for path, text in summary.files(data, made, pictures).items():
        write_text(folder / path, text)
    return {
        "arms": list(data.arms),
        "stopped": sorted(row["arm"] for row in made["sft_only"] if row["stopped"]),
        "inside_noise": sorted(row["arm"] for row in made["sft_only"] if row["eval_diff_noise"]),
        "improved_by_rl": sorted(
            row["arm"] for row in made["final"] if row["rl_gain_noise"] is False and row["rl_gain"] > 0
        ),
    }


def draw(folder: Path, data: StudyData, made: dict[str, list[dict[str, Any]]]) -> None:
    """The four figures."""
    phases = {name: arm.phases for name, arm in data.arms.items()}
    stops = {
        name: (min(at), len(at), len(arm.runs))
        for name, arm in data.arms.items()
        if (at := [run.stopped_at for run in arm.runs.values() if run.stopped_at is not None])
    }
    figures.forest(folder / "forest.png", made["sft_only"], data.compared_with)
    figures.trajectories(folder / "trajectories.png", made["trajectories"], phases, stops, data.reference)
    figures.recital(folder / "recital.png", made["sft_only"])
    figures.knowledge(folder / "knowledge.png", made["knowledge"], phases)
