from __future__ import annotations

import subprocess
import sys

import pytest

from internalize.errors import UserError
from internalize.games import make_game
from internalize.games.protocol import Game

STATIONS = {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"}
POTS = {"a": "blue", "b": "red", "c": "green"}


def test_makes_the_game_of_the_study_file() -> None:
    game: Game = make_game("dipwheel", rules={"stations": STATIONS, "pots": POTS})
    assert game.name == "dipwheel"
    assert set(game.training_levels) < set(game.levels)
    assert game.advice(game.start(1, 0)).call.startswith("dip:")


def test_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="unknown game kind") as caught:
        make_game("dipweel", rules={})
    assert "dipwheel" in caught.value.expected
    assert "dipweel" in caught.value.got


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "game.rules"),
        ({"rules": {"stations": STATIONS}}, "game.rules"),
        ({"rules": {"stations": STATIONS, "pots": POTS}, "speed": 3}, "speed"),
        ({"rules": {"stations": {**STATIONS, "N": "trap"}, "pots": POTS}}, "rules.stations"),
        ({"rules": {"stations": {**STATIONS, "X": "trap"}, "pots": POTS}}, "rules.stations"),
        ({"rules": {"stations": STATIONS, "pots": {"a": "blue", "b": "red"}}}, "rules.pots"),
        ({"rules": {"stations": STATIONS, "pots": ["blue", "red", "green"]}}, "rules.pots"),
        ({"rules": {"stations": STATIONS, "pots": {**POTS, "c": 3}}}, "rules.pots"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(UserError) as caught:
        make_game("dipwheel", **settings)
    assert named in str(caught.value)


def test_games_and_language_import_without_torch_or_pillow() -> None:
    code = (
        "import sys, internalize.games.session, internalize.games.dipwheel, internalize.language.template;"
        "print([m for m in ('torch', 'PIL', 'transformers', 'megatron') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
