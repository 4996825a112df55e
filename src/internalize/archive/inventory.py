"""Checkpoints: every iteration of every run, its phase, what it cost in bytes, and where its weights are.

Invariant: built from receipts alone; an iteration counts as complete only if its step was committed with model,
optimizer, tracker and data cursor. Model weights are published one repository an iteration, and only for iterations
that the study's `convert` has turned into model folders.

A converted iteration is an input called `convert.<arm>.<seed>.step<step>`, whose payload is the model folder that is
published as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize.archive import layout
from internalize.archive.layout import CONVERT, Run, model_name
from internalize.archive.sources import is_checkpoint
from internalize.archive.tables import Table
from internalize.archive.text import markdown, size
from internalize.files import write_json, write_text
from internalize.receipts import Receipt

CHECKPOINTS = Table(
    "checkpoints",
    "one saved iteration of a run: phase, files, bytes, what SFT it has had, and its model repository if it has one",
    {
        "run": "string",
        "arm": "string",
        "seed": "int64",
        "iteration": "int64",
        "phase": "string",
        "files": "int64",
        "bytes": "int64",
        "complete": "bool",
        "latest": "bool",
        "sft_steps": "int64",
        "rl_steps": "int64",
        "sft_only": "bool",
        "cite_weight": "float64",
        "nll_trained": "float64",
        "return_mean": "float64",
        "clears": "int64",
        "episodes": "int64",
        "model": "string",
        "receipt": "string",
    },
    (layout.CHECKPOINTS,),
)


@dataclass(frozen=True)
class Model:
    """A converted iteration."""

    run: Run
    step: int
    repository: str
    receipt: Receipt


def models(spec: Mapping[str, Any], receipts: Mapping[str, Receipt]) -> list[Model]:
    """The converted iterations among the inputs, by run and step."""
    found = []
    for label, receipt in sorted(receipts.items()):
        match = CONVERT.match(label)
        if match and receipt.facts.get("converted", True):  # a step that the guard stopped has nothing to convert
            run, step = Run(match["arm"], int(match["seed"])), int(match["step"])
            frozen = bool(spec["arms"][run.arm]["settings"].get("rl", {}).get("frozen_adam", False))
            prefix = spec["archive"].get("models") or spec["name"]
            found.append(Model(run, step, model_name(prefix, run.name, step, frozen), receipt))
    return found


def inventory(
    spec: Mapping[str, Any], receipts: Mapping[str, Receipt], metrics: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One row an iteration, in the study's order.

    Args:
        metrics: rows of all runs; evals give returns and clears, probes the knowledge NLL.
    """
    measured: dict[tuple[str, int], dict[str, Any]] = {}
    for row in metrics:
        if row["kind"] in ("eval", "probe"):
            measured.setdefault((row["run"], row["step"]), {})[row["kind"]] = row
    named = {(model.run, model.step): model.repository for model in models(spec, receipts)}
    rows = []
    for arm in spec["order"]:
        for seed in spec["arms"][arm]["seeds"]:
            run, part = Run(arm, seed), []
            phases = spec["arms"][arm]["phases"]
            for step in range(len(phases)):
                receipt = receipts.get(f"step.{arm}.{seed}.{step:04d}")
                files = [file for file in receipt.files if is_checkpoint(file.path)] if receipt else []
                if receipt is None or not files:
                    continue
                paths = {file.path.partition("/")[0] for file in files}
                seen = measured.get((run.name, step), {})
                done = phases[: step + 1]
                part.append(
                    {
                        "run": run.name,
                        "arm": arm,
                        "seed": seed,
                        "iteration": step,
                        "phase": phases[step],
                        "files": len(files),
                        "bytes": sum(file.bytes for file in files),
                        "complete": len(paths) >= 3,  # the model's folder, the tracker, the cursor's folder
                        "sft_steps": len([phase for phase in done if phase != "rl"]),
                        "rl_steps": len([phase for phase in done if phase != "sft"]),
                        "sft_only": set(done) == {"sft"},
                        "cite_weight": receipt.spec.get("cite_weight"),
                        "nll_trained": seen.get("probe", {}).get("nll_play_trained"),
                        **{key: seen.get("eval", {}).get(key) for key in ("return_mean", "clears", "episodes")},
                        "model": named.get((run, step)),
                        "receipt": receipt.hash(),
                    }
                )
            last = max((row["iteration"] for row in part if row["complete"]), default=None)
            rows += [{**row, "latest": row["iteration"] == last} for row in part]
    return rows


def write_inventory(folder: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    """`checkpoints.jsonl`, `.json`, `.md` and `series.md` in `folder`; the number of rows."""
    count = CHECKPOINTS.write(folder / "checkpoints.jsonl", rows)
    total = sum(row["bytes"] for row in rows)
    complete = sum(row["complete"] for row in rows)
    write_json(folder / "checkpoints.json", {"iterations": [dict(row) for row in rows], "bytes": total})
    head = ["run", "iteration", "phase", "files", "bytes", "complete", "latest", "model repository"]
    cells = [
        [
            *(str(row[key]) for key in ("run", "iteration", "phase", "files", "bytes")),
            "yes" if row["complete"] else "no",
            "latest" if row["latest"] else "",
            row["model"] or "-",
        ]
        for row in rows
    ]
    lead = (
        f"{len(rows)} iterations, {complete} complete, {size(total)} (Megatron `torch_dist`, with optimizer state). "
        "They stay in the store where they were made; iterations that the study converts become model repositories."
    )
    write_text(folder / "checkpoints.md", f"# Checkpoints\n\n{lead}\n\n{markdown(head, cells)}")
    write_text(folder / "series.md", series(rows))
    return count


def series(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: the phase of every iteration, and each run's SFT-only series ("more knowledge, same base")."""
    lead = (
        "Phase of each iteration, in order (s: SFT, r: RL, j: joint). A run that the guard stopped ends where it was."
    )
    text = ["# Series", "", lead, ""]
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        runs.setdefault(row["run"], []).append(row)
    text += [markdown(["run", "phases"], [[run, "".join(r["phase"][0] for r in part)] for run, part in runs.items()])]
    text += ["## SFT-only iterations", "", "Before any RL: what supervised knowledge alone has made of the base.", ""]
    cells = [
        [row["run"], str(row["iteration"]), _cell(row["cite_weight"]), _cell(row["nll_trained"]), row["model"] or "-"]
        for row in rows
        if row["sft_only"]
    ]
    head = ["run", "iteration", "cite weight", "NLL a token of the trained facts", "model repository"]
    return "\n".join([*text, markdown(head, cells) if cells else "No run has any.\n"])


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"
