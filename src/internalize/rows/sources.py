"""Row source types and their builders.

Invariant: a builder is `build(context, settings) -> rows`; adding a source is one module and one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from internalize.errors import StudyError
from internalize.records import SftRow
from internalize.rows import (
    actctrl,
    armc,
    claimform,
    claims,
    curated,
    declarative,
    mask_knowledge,
    nostance,
    recite,
    replay,
    softlabel,
)
from internalize.rows.context import RowContext

Build = Callable[[RowContext, dict[str, Any]], list[SftRow]]

BUILDERS: dict[str, Build] = {
    "actctrl": actctrl.build,
    "armc": armc.build,
    "claimform": claimform.build,
    "claims": claims.build,
    "curated": curated.build,
    "declarative": declarative.build,
    "mask_knowledge": mask_knowledge.build,
    "nostance": nostance.build,
    "recite": recite.build,
    "replay": replay.build,
    "softlabel": softlabel.build,
}


def build_rows(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """The rows of one source table of the study file; StudyError for an unknown `type`."""
    kind = settings.get("type")
    if kind not in BUILDERS:
        raise StudyError("unknown row source", where="rows.type", got=str(kind), expected=" ".join(sorted(BUILDERS)))
    return BUILDERS[kind](context, settings)
