"""`claims`: questions about every verified atom, in both wordings, answered in text.

Invariant: one row a question; held-out atoms and forms are never asked.
"""

from __future__ import annotations

from typing import Any

from internalize.records import SftRow
from internalize.rows.chat import distinct, question_row
from internalize.rows.context import RowContext


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """Rows of the `qa` forms; no settings."""
    return distinct(context, (question_row(context, "claims", form) for form in context.knowledge.forms("qa")))
