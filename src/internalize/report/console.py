"""The results table in the terminal.

Invariant: it prints what `summary.csv` holds; it computes nothing.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from internalize.errors import MissingPayload
from internalize.report.text import DASH, difference, estimate, number, share


def print_results(folder: Path, console: Console | None = None) -> None:
    """Prints the main table of `results/` and where the report lies.

    Raises:
        MissingPayload: there is no report in `folder`.
    """
    path = folder / "summary.csv"
    if not path.exists():
        raise MissingPayload(
            "no results yet", where=str(path), fix="run `make study` (or `snakemake --profile local`) first"
        )
    with path.open(newline="") as handle:
        rows = [{key: _value(value) for key, value in row.items()} for row in csv.DictReader(handle)]
    out = console or Console()
    out.print(_table(rows))
    stopped = [f"{row['arm']}: {row['stopped']}" for row in rows if row["stopped"]]
    if stopped:
        out.print("stopped by the collapse guard: " + "; ".join(stopped), highlight=False)
    report = folder / "summary.md"
    out.print(
        f"report: {report}   figures: {folder}/*.png   tables: {folder}/tables/",
        highlight=False,
        soft_wrap=True,
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="SFT-only policy and end of each arm (95 % intervals)", title_justify="left")
    table.add_column("arm", no_wrap=True)
    for name in (
        "first RL rollout",
        "clears",
        "eval after SFT",
        "difference to the reference",
        "end of the arm",
        "clears",
        "recites",
        "NLL",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        reference = row["sft_only_eval_diff"] is None and row["sft_only_eval_return"] is not None
        quiet = row["sft_only_eval_diff_noise"]
        table.add_row(
            str(row["arm"]),
            estimate(row, "sft_only_rollout_return"),
            _count(row, "sft_only_rollout"),
            estimate(row, "sft_only_eval_return"),
            DASH if reference else difference(row, "sft_only_eval_diff"),
            estimate(row, "final_eval_return"),
            _count(row, "final_eval"),
            share(row["recital_share"]),
            number(row["nll_play"]),
            style="dim" if quiet else None,
        )
    return table


def _count(row: dict[str, Any], source: str) -> str:
    if row.get(f"{source}_clears") is None:
        return DASH
    return f"{row[f'{source}_clears']:.0f}/{row[f'{source}_episodes']:.0f}"


def _value(text: str | None) -> Any:
    """A CSV cell as what it was: None, a flag, a number or a text."""
    if text is None or text == "":
        return None
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text
