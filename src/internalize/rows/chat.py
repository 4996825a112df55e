"""One-question rows from the recall forms of the knowledge set.

Invariant: a question row is one user turn and one reply, both rendered by the template; all of the reply
is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from internalize.records import RowProvenance, SftRow
from internalize.rows.context import RowContext
from internalize.rows.leak import Leaks


def question_row(context: RowContext, source: str, form: Mapping[str, Any], *, call: str | None = None) -> SftRow:
    """The row that asks `form["prompt"]`.

    Args:
        call: None answers in text; a call word answers in the think and ends in that call.
    """
    template = context.template
    user = template.user(form["prompt"])
    if call is None:
        reply = template.reply_ids("", say=form["answer"])
    else:
        reply = template.reply_ids(form["answer"], call=call)
    return SftRow(
        tokens=user + reply,
        weights=[0.0] * len(user) + [1.0] * len(reply),
        cite=[0] * (len(user) + len(reply)),
        source=source,
        provenance=RowProvenance(episode=None, turns=1, atoms=[form["atom"]]),
    )


def distinct(context: RowContext, rows: Iterable[SftRow]) -> list[SftRow]:
    """The rows without repetitions and without held-out statements, both counted."""
    leaks = Leaks(context.knowledge, context.template)
    kept: dict[tuple[int, ...], SftRow] = {}
    for row in rows:
        if leaks.found(row.tokens) is not None:
            context.dropped_episodes["states held-out knowledge"] += 1
        elif kept.setdefault(tuple(row.tokens), row) is not row:
            context.dropped_episodes["duplicate"] += 1
    return list(kept.values())
