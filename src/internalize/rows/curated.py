"""`curated`: the rows of another set whose episodes were played on some levels.

Invariant: rows are taken over as they are, or not at all.
"""

from __future__ import annotations

from typing import Any

from internalize.errors import StudyError
from internalize.records import SftRow
from internalize.rows.context import RowContext


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """Parent rows of `levels`.

    Raises:
        StudyError: the parent's rows come from no episodes, so they have no level.
    """
    rows = []
    for row in context.parent:
        if row.provenance.episode is None:
            raise StudyError(
                "a row set without play has no levels",
                where=f"rows.{settings['of']}",
                expected="a source that reads a harvest",
                got=row.source,
                fix="let `of` name recite, actctrl, armc, nostance or replay rows",
            )
        if context.starts[row.provenance.episode].level in settings["levels"]:
            rows.append(row)
        else:
            context.dropped_episodes["other level"] += 1
    return rows
