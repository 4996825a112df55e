"""The results table in the terminal.

Invariant: it prints what `summary.csv` holds; it computes nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from internalize.errors import MissingPayload
from internalize.report.text import DASH, difference, estimate, number, share

WIDE = 125
"""Columns of a terminal from which on everything fits."""


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
    out.print(_table(rows, out.width))
    stopped = [f"{row['arm']}: {row['stopped']}" for row in rows if row["stopped"]]
    if stopped:
        out.print("stopped by the collapse guard: " + "; ".join(stopped), highlight=False)
    page = folder / "report" / "index.html"
    if page.exists():
        out.print(f"page: {page} (opens in a browser, from disk)", highlight=False, soft_wrap=True)
    out.print(
        f"report: {folder / 'summary.md'}   figures: {folder}/*.png   tables: {folder}/tables/",
        highlight=False,
        soft_wrap=True,
    )


def _table(rows: list[dict[str, Any]], width: int) -> Table:
    """All columns, or on a narrow terminal the four that matter most, with intervals on lines of their
    own."""
    wide = width >= WIDE
    table = Table(title="SFT-only policy and end of each arm (95 % intervals)", title_justify="left")
    table.add_column("arm", no_wrap=True)
    for name, narrow, _ in COLUMNS:
        if wide or narrow:
            table.add_column(name, justify="right")
    for row in rows:
        cells = [make(row) for _, narrow, make in COLUMNS if wide or narrow]
        if not wide:
            cells = [cell.replace(" [", "\n[").replace(", ", " ").replace(" (", "\n(") for cell in cells]
        table.add_row(str(row["arm"]), *cells, style="dim" if row["sft_only_eval_diff_noise"] else None)
    return table


def _versus(row: dict[str, Any]) -> str:
    if row["sft_only_eval_same"] is not None:
        return "same policy" if row["sft_only_eval_same"] else "reference"
    return difference(row, "sft_only_eval_diff")


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


COLUMNS: tuple[tuple[str, bool, Callable[[dict[str, Any]], str]], ...] = (
    ("first RL rollout", False, lambda row: estimate(row, "sft_only_rollout_return")),
    ("clears", False, lambda row: _count(row, "sft_only_rollout")),
    ("eval after SFT", True, lambda row: estimate(row, "sft_only_eval_return")),
    ("difference", True, _versus),
    ("end of the arm", True, lambda row: estimate(row, "final_eval_return")),
    ("clears", True, lambda row: _count(row, "final_eval")),
    ("recites", False, lambda row: share(row["recital_share"])),
    ("NLL", False, lambda row: number(row["nll_play"])),
)
"""Heading, whether it stays on a narrow terminal, and the cell."""
