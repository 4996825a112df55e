"""The model folder of the hub type, and the board's game."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_hub import call_text, make_model

CALLS = {**{call_text(f"ACTION{number}"): 0.15 for number in range(1, 5)}, call_text("ACTION5"): 0.3}
CALLS |= {call_text("ACTION6", x, 4): 0.05 for x in (22, 28)}
TEXT = [
    "level 1, 19 acts left\n0-1: 5x64\n2: 5x20 4x5 5x1 4x5 5x33\n3-5: 5x20 4x1 8x3 4x1 5x1 4x1 9x3 4x1 5x33",
    "26: 5x34 2x4 5x26\n27-28: 5x34 2x1 8x3 5x26\n34-37: 5x34 0x4 5x26\n4-5: 5x4 0x4 5x12 4x1 8x3 4x1",
    "A dip at NE paints the lower left of the canvas in the loaded paint.",
    "What does a dip at SW paint? The upper right of the canvas. With the tool at N, right takes it to NE.",
    "You play a game by its tools, one call a turn. What is known about the game: claim true false",
    '{"type": "function", "function": {"name": "look", "description": "See the game.", "parameters": {"type": "object"',
] * 3


@pytest.fixture(scope="session")
def hub_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of the hub's kind."""
    return make_model(tmp_path_factory.mktemp("hub") / "model", TEXT, CALLS)
