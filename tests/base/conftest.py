"""The bundled study's game and its template."""

from __future__ import annotations

from typing import Any

import pytest

from internalize.games.dipwheel import DipWheel, from_settings
from internalize.language.template import Template

RULES = {
    "stations": {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
    "pots": {"a": "blue", "b": "red", "c": "green"},
}


@pytest.fixture(scope="session")
def game_settings() -> dict[str, Any]:
    return {"kind": "dipwheel", "rules": RULES}


@pytest.fixture(scope="session")
def game() -> DipWheel:
    return from_settings(RULES)


@pytest.fixture
def template(game: DipWheel) -> Template:
    return Template.of(game)
