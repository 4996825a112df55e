"""Numbers and tables as text.

Invariant: what was not measured prints as a dash, an interval prints beside its estimate, and a difference
inside the noise says so in words.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

DASH = "-"
NOISE = "inside the noise"

Row = Mapping[str, Any]


def number(value: float | None, digits: int = 2, sign: bool = False) -> str:
    """`0.31`, with its sign where wanted; a dash for None."""
    return DASH if value is None else f"{value:{'+' if sign else ''}.{digits}f}"


def share(value: float | None) -> str:
    """`31 %`; below ten per cent with one decimal."""
    if value is None:
        return DASH
    return f"{100 * value:.0f} %" if value >= 0.0995 or value == 0 else f"{100 * value:.1f} %"


def estimate(row: Row, key: str) -> str:
    """`+0.31 [+0.24, +0.38]` from the columns `key`, `key_low` and `key_high`."""
    if row.get(key) is None:
        return DASH
    if row.get(f"{key}_low") is None:
        return number(row[key], sign=True)
    value, low, high = (number(row[name], sign=True) for name in (key, f"{key}_low", f"{key}_high"))
    return f"{value} [{low}, {high}]"


def clears(row: Row, source: str) -> str:
    """`3/96 (3.1 %) [1.1 %, 8.8 %]`."""
    count, total = row.get(f"{source}_clears"), row.get(f"{source}_episodes")
    if count is None or not total:
        return DASH
    bounds = f"[{share(row[f'{source}_clears_low'])}, {share(row[f'{source}_clears_high'])}]"
    return f"{count}/{total} ({share(count / total)}) {bounds}"


def difference(row: Row, key: str) -> str:
    """The difference with its interval; inside the noise it says so."""
    text = estimate(row, key)
    return f"{text} ({NOISE})" if row.get(f"{key}_noise") else text


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table; the first `words` columns are left-aligned, the others are right-aligned."""
    rule = [*["---"] * words, *["---:"] * (len(header) - words)]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(rule) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def csv_text(rows: Sequence[Row]) -> str:
    """CSV with every key of every row as a column, in order of first appearance; None is an empty cell."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: cell_text(row.get(key)) for key in columns})
    return out.getvalue()


def cell_text(value: Any) -> str:
    """A value as a table's CSV holds it: six decimals, `true` or `false`, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(round(value, 6) if isinstance(value, float) else value)
