"""`claims`: questions about every verified atom, in both wordings, answered in text.

Invariant: one row a question; held-out atoms and forms are never asked.
"""

from __future__ import annotations

from typing import Any

from internalize.records import SftRow
from internalize.rows.chat import distinct, question_row
from internalize.rows.context import RowContext


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """Rows of the `qa` forms; with `limit`, so many of them, spread evenly over the order of the atoms."""
    rows = distinct(context, (question_row(context, "claims", form) for form in context.knowledge.forms("qa")))
    limit = int(settings.get("limit") or len(rows))
    return rows if limit >= len(rows) else [rows[index * len(rows) // limit] for index in range(limit)]
