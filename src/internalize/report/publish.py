"""From the store to `results/`: the report's files, and what the study has cost.

Invariant: `results/` holds the payload's files unchanged, except that `summary.md` gets a last section with
the times, which differ from run to run and therefore lie in no payload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from internalize.files import tree_files, write_bytes, write_text
from internalize.receipts import Receipt
from internalize.report.text import csv_text, markdown, number, share
from internalize.store import RECEIPT, RUN, Store

COST_HEAD = "## Cost"

#: Category of a stage whose seconds are one thing; the parts of `step` and of every stage are told apart
# below.
STAGES = {
    "knowledge": "knowledge",
    "base": "training",
    "gate": "play",
    "harvest": "play",
    "rows": "rows",
    "evals": "evals",
    "report": "report",
}
PARTS = {"play": "play", "train": "training", "softlabel": "training", "eval": "evals", "probe": "evals"}
"""Named parts of a stage's seconds; every other named part (startup, inputs, save, ...) is overhead."""
WORK = ("play", "training", "evals")
OVERHEAD = "overhead"


def publish(
    store: Store,
    receipts: Mapping[str, Receipt],
    report: Receipt,
    results: Path,
    total_cpu_s: float | None = None,
) -> None:
    """Copies the report's payload to `results` and adds the cost section and `costs.csv`.

    Args:
        store: holds the payloads.
        receipts: every receipt of the study, by any name, the report's too if its cost should count.
        report: receipt of the report stage.
        results: folder to write.
        total_cpu_s: CPU seconds of the whole command with its children, when known; what no receipt
            accounts for is then shown as Snakemake's own.

    Raises:
        CorruptPayload, MissingPayload: the report's payload is damaged or gone.
    """
    payload = store.open(report).payload
    rows = costs((receipt.stage, store.run_info(receipt)) for receipt in receipts.values())
    for path in tree_files(payload):
        name = path.relative_to(payload).as_posix()
        if name == "summary.md":
            write_text(results / name, path.read_text() + "\n" + cost_section(rows, total_cpu_s))
        elif name not in (RECEIPT, RUN):
            write_bytes(results / name, path.read_bytes())
    write_text(results / "costs.csv", csv_text(rows))


def costs(runs: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """One row a stage: runs, CPU seconds by category, wall seconds summed over runs, and the largest memory.

    Args:
        runs: stage and content of its `run.json`, for each receipt; a run without a `run.json` (pruned)
            counts no seconds.
    """
    rows: dict[str, dict[str, Any]] = {}
    for stage, run in runs:
        row = rows.setdefault(stage, {"stage": stage, "runs": 0, "cpu_s": 0.0, "wall_s": 0.0, "peak_rss_mib": 0})
        row["runs"] += 1
        row["cpu_s"] += run.get("cpu_s", 0.0)
        row["wall_s"] += run.get("wall_s", 0.0)
        row["peak_rss_mib"] = max(row["peak_rss_mib"], run.get("peak_rss_mib", 0))
        for category, seconds in categories(stage, run).items():
            row[f"{category}_s"] = row.get(f"{category}_s", 0.0) + seconds
    return [rows[stage] for stage in (*STAGES, "step") if stage in rows]


def categories(stage: str, run: Mapping[str, Any]) -> dict[str, float]:
    """CPU seconds of one run by category: named parts by `PARTS`, the rest by the stage."""
    found: defaultdict[str, float] = defaultdict(float)
    parts = run.get("cpu_parts_s", {})
    for part, seconds in parts.items():
        found[PARTS.get(part, OVERHEAD)] += seconds
    found[STAGES.get(stage, OVERHEAD)] += max(0.0, run.get("cpu_s", 0.0) - sum(parts.values()))
    return {category: seconds for category, seconds in found.items() if seconds}


def cost_section(rows: Iterable[Mapping[str, Any]], total_cpu_s: float | None = None) -> str:
    """Markdown: CPU seconds by stage and category, and the share that is neither play nor training nor
    evals."""
    rows = list(rows)
    names = [f"{name}_s" for name in (*WORK, "knowledge", "rows", "report", OVERHEAD)]
    names = [name for name in names if any(row.get(name) for row in rows)]
    accounted = sum(row["cpu_s"] for row in rows)
    work = sum(row.get(f"{name}_s", 0.0) for row in rows for name in WORK)
    total = max(accounted, total_cpu_s or 0.0)
    table = [
        [
            row["stage"],
            str(row["runs"]),
            number(row["cpu_s"], 1),
            *(number(row.get(n), 1) for n in names),
            str(row["peak_rss_mib"]),
        ]
        for row in rows
    ]
    sums = [number(sum(row.get(name, 0.0) for row in rows), 1) for name in names]
    peak = max((row["peak_rss_mib"] for row in rows), default=0)
    table.append(["all", str(sum(row["runs"] for row in rows)), number(accounted, 1), *sums, str(peak)])
    head = ["stage", "runs", "CPU s", *(name.removesuffix("_s") for name in names), "memory MiB"]
    lead = "CPU seconds of the runs that made these results (what was found in the store keeps its first run's)."
    text = f"{COST_HEAD}\n\n{lead}\n\n{markdown(head, table)}"
    if total_cpu_s is not None:
        rest = max(0.0, total_cpu_s - accounted)
        text += f"\nSnakemake and what no receipt accounts for: {number(rest, 1)} CPU s.\n"
    overhead = share((total - work) / total if total else None)
    return f"{text}\nNeither play nor training nor evals: {overhead} of {number(total, 1)} CPU s.\n"
