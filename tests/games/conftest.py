"""The study's rule set, and players for whole episodes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from internalize.games.dipwheel import DipWheel, Rules
from internalize.games.session import GameSession
from internalize.language.calls import bundled

STUDY_RULES = Rules.of(
    {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
    {"a": "blue", "b": "red", "c": "green"},
)


@pytest.fixture(scope="session")
def game() -> DipWheel:
    return DipWheel(STUDY_RULES)


@pytest.fixture(scope="session")
def play(game: DipWheel) -> Callable[..., GameSession]:
    """`play(choose, level, seed)`: a whole episode with the call words that `choose(session)` gives."""

    def episode(choose: Callable[[GameSession], str], level: int, seed: int) -> GameSession:
        session = GameSession(game, level, seed)
        while not session.done:
            call = bundled().expand(choose(session))
            session.call(call.tool, call.arguments())
        return session

    return episode


@pytest.fixture
def rng() -> random.Random:
    return random.Random(20)
