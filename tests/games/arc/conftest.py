"""The test game behind the adapter, and the real one when the user has it.

The toolkit's engine declares Python 3.12; it runs on 3.11 when it is installed by force. Without it these tests skip.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from ring_layout import LAYOUT
from toolkit_here import need_engine

from internalize.games.arc.game import ArcGame
from internalize.games.arc.ringdip import RingDip

SOURCE = Path(__file__).with_name("ring.py")
CD82_SHA256 = "dafeabff60a3a99b5c93629f8da0d8f555b873ef16a522247d6197b1b3addbcb"


@pytest.fixture(scope="session")
def engine_installed() -> None:
    """Skips, with what to do, unless `arcengine` is here."""
    need_engine()


@pytest.fixture(scope="session")
def source() -> str:
    """The test game's text."""
    return SOURCE.read_text()


@pytest.fixture(scope="session")
def source_sha256() -> str:
    """Its hash."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


@pytest.fixture
def game(engine_installed: None, source: str) -> ArcGame:
    """The test game."""
    from internalize.games.arc.engine import game_class

    return ArcGame(game_class(source, "Ring"), RingDip(LAYOUT), "ring-00000001")


@pytest.fixture(scope="session")
def cd82_file(engine_installed: None) -> Path:
    """The user's own cd82 file; skips unless the variable CD82_FILE names it."""
    named = os.environ.get("CD82_FILE")
    if not named:
        pytest.skip("CD82_FILE does not name the game's file (it is the user's own, and not part of this repository)")
    return Path(named)


@pytest.fixture
def cd82(cd82_file: Path) -> ArcGame:
    """The real game."""
    from internalize.games import make_game

    made = make_game("arc", id="cd82-fb555c5d", sha256=CD82_SHA256, file=str(cd82_file))
    assert isinstance(made, ArcGame)
    return made
