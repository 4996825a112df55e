from __future__ import annotations

import random

import pytest

from internalize.errors import UserError
from internalize.games.dipwheel import DipWheel, random_rules
from internalize.games.protocol import Action
from internalize.language.calls import CallTable, ToolCall, bundled


def test_words_expand_to_the_tools_and_back() -> None:
    assert bundled().expand("dip:NW") == ToolCall("act", "DIP_NW", None, None)
    assert bundled().expand("pot:c") == ToolCall("act", "CLICK", 2, 6)
    assert bundled().expand("look") == ToolCall("look")
    assert len(bundled().words) == len(set(bundled().words)) == 10
    for word in bundled().words:
        assert bundled().word_of(bundled().expand(word)) == word
        assert word in bundled()


def test_arguments_on_the_wire() -> None:
    assert bundled().expand("pot:a").arguments() == {"action": "CLICK", "x": 0, "y": 6}
    assert bundled().expand("dip:S").arguments() == {"action": "DIP_S", "x": None, "y": None}
    assert bundled().expand("look").arguments() == {}


def test_the_bundled_table_is_the_games_own_and_agrees_with_its_action_specs() -> None:
    game = DipWheel(random_rules(random.Random(0)))
    table = CallTable(game.call_words())
    assert table.words == bundled().words
    needs = dict(game.actions(game.start(1, 0)))
    acts = [table.expand(word) for word in table.words if word != "look"]
    assert {call.action for call in acts} == set(needs)
    assert all((call.x is not None) == needs[str(call.action)] for call in acts)


@pytest.mark.parametrize("word", ["dip:X", "status", "", "left@N", "DIP_N"])
def test_unknown_words_are_user_errors(word: str) -> None:
    assert word not in bundled()
    with pytest.raises(UserError, match="unknown call word") as caught:
        bundled().expand(word)
    assert "dip:N" in caught.value.expected


@pytest.mark.parametrize("call", [ToolCall("status"), ToolCall("act", "CLICK", 5, 5), ToolCall("act", "FLY")])
def test_calls_without_a_word_are_user_errors(call: ToolCall) -> None:
    with pytest.raises(UserError, match="no call word"):
        bundled().word_of(call)


def test_a_table_follows_the_game_it_was_made_of() -> None:
    table = CallTable({"go": Action("ACTION1"), "tap": Action("ACTION6", 3, 4)})
    assert table.words == ("go", "tap", "look")
    assert table.expand("tap") == ToolCall("act", "ACTION6", 3, 4)
    assert table.word_of(ToolCall("act", "ACTION1")) == "go"
