"""`replay`: earlier turns used again beside other rows, prompt included, to hold on to what the base does
already.

Invariant: a row is the episode as the engine saw and sampled it, facts in the first user turn included if
there were any.
"""

from __future__ import annotations

from typing import Any

from internalize.records import SftRow
from internalize.rows.actctrl import as_played
from internalize.rows.context import RowContext
from internalize.rows.packed import pack_all


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """One row an episode of the `harvest`; an arm gives it a share of the SFT turns."""
    return pack_all(context, "replay", lambda turn: None, as_played, knowledge=True)
