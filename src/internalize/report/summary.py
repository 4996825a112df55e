"""`summary.md`: what happened, how sure it is, and what to make of it.

Invariant: the text is made from the rows of `report.tables` and from receipts' facts; it says of every arm
whether it differs from the reference, and of every stopped arm why. Nothing that differs from run to run
stands here (times are added when the report is published, see `report.costs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from internalize.report import sections
from internalize.report.data import StudyData
from internalize.report.text import csv_text

Row = dict[str, Any]

FIGURES = {
    "forest.png": "The SFT-only policy of each arm, from its first RL rollout and from the eval.",
    "trajectories.png": "Return of the RL rollouts; panels share their axes.",
    "recital.png": "Reciting beside using.",
    "knowledge.png": "NLL per token of the true facts, by form.",
}


def summary(data: StudyData, tables: Mapping[str, Sequence[Row]], pictures: Sequence[str]) -> str:
    """The markdown of the report. `tables`: name -> rows; `pictures`: files that lie beside it."""
    parts = [
        f"# {data.name}: results\n",
        sections.setting(data),
        "## The SFT-only policy\n",
        sections.first_rollout(data, tables["sft_only"]),
        sections.first_eval(data, tables["sft_only"]),
        _picture("forest.png", pictures),
        "## RL\n",
        sections.trajectory(tables["trajectories"]),
        sections.final(data, tables["final"]),
        _picture("trajectories.png", pictures),
        "## Recital and use\n",
        sections.recital(tables["sft_only"]),
        _picture("recital.png", pictures),
        "## Knowledge\n",
        sections.knowledge(data, tables),
        _picture("knowledge.png", pictures),
        "## Behaviour\n",
        sections.behaviour(tables["behaviour"]),
        "## Arms\n",
        sections.arms(data, tables["sft_only"]),
        "## How to read the numbers\n",
        sections.reading(data),
    ]
    if "rulegraph.svg" in pictures:
        parts.append(
            "## Workflow\n\n![rules](rulegraph.svg)\n" + ("\n[every job](dag.svg)\n" if "dag.svg" in pictures else "")
        )
    return "\n".join(part for part in parts if part)


def headline(tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """`summary.csv`: one short row an arm, from the two policy tables."""
    end = {row["arm"]: row for row in tables["final"]}
    keep = (
        "return",
        "return_low",
        "return_high",
        "clears",
        "episodes",
        "diff",
        "diff_low",
        "diff_high",
        "diff_noise",
        "same",
    )
    rows = []
    for row in tables["sft_only"]:
        short: Row = {"arm": row["arm"], "policy": row["policy"], "seeds": row["seeds"]}
        for source in ("rollout", "eval"):
            short |= {f"sft_only_{source}_{key}": row.get(f"{source}_{key}") for key in keep}
        short |= {f"final_eval_{key}": end[row["arm"]].get(f"eval_{key}") for key in keep}
        short |= {f"rl_gain{key}": end[row["arm"]].get(f"rl_gain{key}") for key in ("", "_low", "_high", "_noise")}
        short |= {
            key: row.get(key) for key in ("recital_share", "right_given_recited", "nll_play", "nll_play_held_out")
        }
        rows.append({**short, "status": row["status"], "stopped": row["stopped"]})
    return rows


def files(data: StudyData, tables: Mapping[str, Sequence[Row]], pictures: Sequence[str]) -> dict[str, str]:
    """Name -> text of everything in the report that is text."""
    texts = {f"tables/{name}.csv": csv_text(rows) for name, rows in tables.items()}
    return {"summary.md": summary(data, tables, pictures), "summary.csv": csv_text(headline(tables)), **texts}


def _picture(name: str, pictures: Sequence[str]) -> str:
    return f"![{FIGURES[name]}]({name})\n" if name in pictures else ""
