"""Asking every cell of a table for its evidence."""

from __future__ import annotations

import csv
from typing import Any

from internalize.report.evidence import BY_STEP, Evidence, Ref, table_path
from internalize.report.text import cell_text


def rows_of(evidence: Evidence, table: str) -> list[dict[str, str]]:
    """A table as `results/` holds it."""
    with table_path(evidence.results.folder, table).open(newline="") as handle:
        return list(csv.DictReader(handle))


def disagreements(evidence: Evidence, table: str) -> tuple[int, list[str]]:
    """Cells asked, and those that do not come out equal; cells of one evidence are made once."""
    made: dict[tuple[Ref, ...], list[dict[str, Any]]] = {}
    asked, wrong = 0, []
    for row in rows_of(evidence, table):
        step = int(row["step"]) if table in BY_STEP else None
        for column, printed in row.items():
            refs = tuple(evidence.behind(table, row["arm"], step, column))
            if refs not in made:
                made[refs] = evidence.again(refs, table)
            again = [one for one in made[refs] if one["arm"] == row["arm"] and one.get("step", step) == step]
            found = cell_text(again[0].get(column)) if again else "no such row"
            asked += 1
            if found != printed:
                wrong.append(f"{row['arm']} {step} {column}: {printed} in the table, {found} from {refs}")
    return asked, wrong


def wrong_costs(evidence: Evidence) -> list[str]:
    """Rows of the costs table that the store's runs do not give."""
    printed = rows_of(evidence, "costs")
    again = [{key: cell_text(row.get(key)) for key in printed[0]} for row in evidence.costs()]
    return [f"{row} in the table, {made}" for row, made in zip(printed, again, strict=True) if row != made]
