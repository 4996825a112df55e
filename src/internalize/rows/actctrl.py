"""`actctrl`: the base's own turns, no knowledge anywhere: the control for training on play as such.

Invariant: a row is the episode as the engine saw and sampled it, token for token.
"""

from __future__ import annotations

from typing import Any

from internalize.records import SftRow
from internalize.rows.context import RowContext
from internalize.rows.packed import Edited, pack_all
from internalize.rows.talk import Talk, Turn


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """One row an episode of the `harvest`."""
    return pack_all(context, "actctrl", lambda turn: None, as_played)


def as_played(talk: Talk, turn: Turn) -> Edited:
    """The reply unchanged; what it says by chance is nobody's atom."""
    return Edited(turn.reply)
