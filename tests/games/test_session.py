from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import UserError
from internalize.games.dipwheel import DipWheel
from internalize.games.session import GameSession
from internalize.language.calls import bundled
from internalize.records import JournalRow

ROW = {"tool", "arguments", "result"}
ARGUMENTS = {"action", "x", "y"}
RESULT = {
    *("actions", "actions_left", "cells_changed", "change_kinds", "changed_cells", "changed_omitted"),
    *("decisions", "done", "observation", "state"),
}
REFUSED: list[tuple[str, dict[str, Any] | None, str]] = [
    ("act", None, "action must be a string"),
    ("act", {}, "action must be a string"),
    ("act", {"action": 3}, "action must be a string"),
    ("act", {"action": "RESET"}, "unknown action"),
    ("act", {"action": "dip_n"}, "unknown action"),
    ("act", {"action": "DIP_N", "x": 0, "y": 0}, "takes no coordinates"),
    ("act", {"action": "CLICK"}, "needs x and y"),
    ("act", {"action": "CLICK", "x": 1}, "needs x and y"),
    ("act", {"action": "CLICK", "x": 8, "y": 0}, "outside the frame"),
    ("act", {"action": "CLICK", "x": 0, "y": -1}, "outside the frame"),
    ("act", {"action": "CLICK", "x": "1", "y": 2}, "x must be an integer"),
    ("act", {"action": "CLICK", "x": 1, "y": 2.0}, "y must be an integer"),
    ("act", {"action": "CLICK", "x": True, "y": 2}, "x must be an integer"),
    ("act", {"action": "DIP_N", "speed": 2}, "unknown argument speed"),
    ("look", {"far": 1}, "unknown argument far"),
    ("status", {"x": 1}, "unknown argument x"),
]


def run(session: GameSession, word: str) -> JournalRow:
    call = bundled().expand(word)
    return session.call(call.tool, call.arguments())


def test_journal_rows_have_the_keys_of_the_published_record(game: DipWheel) -> None:
    session = GameSession(game, 3, 1)
    rows = [run(session, "look"), run(session, "pot:a"), run(session, "dip:N"), session.call("status")]
    rows.append(session.call("act", {"action": "nonsense"}))
    for row in rows:
        record = row.model_dump(mode="json")
        assert set(record) == ROW
        assert set(record["arguments"]) == ARGUMENTS
        assert set(record["result"]) == RESULT
        assert all(set(spec) == {"action_type", "requires_coordinates"} for spec in record["result"]["actions"])
        assert JournalRow.model_validate(record) == row


def test_an_act_is_recorded_exactly(game: DipWheel) -> None:
    session = GameSession(game, 2, 0)
    session.state = session.state._replace(pot=1, target=(1, 0, 1, 0))
    session._frame = game.frame(session.state)
    assert run(session, "pot:a").model_dump(mode="json") == {
        "tool": "act",
        "arguments": {"action": "CLICK", "x": 0, "y": 6},
        "result": {
            "actions": [
                *(
                    {"action_type": f"DIP_{s}", "requires_coordinates": False}
                    for s in ("N", "NE", "SE", "S", "SW", "NW")
                ),
                {"action_type": "CLICK", "requires_coordinates": True},
            ],
            "actions_left": 4,
            "cells_changed": 2,
            "change_kinds": {"4->7": 1, "7->4": 1},
            "changed_cells": [[0, 7, 4, 7], [1, 7, 7, 4]],
            "changed_omitted": 0,
            "decisions": 1,
            "done": False,
            "observation": "pot p:a T r _ r _ C _ _ _ _",
            "state": "NOT_FINISHED",
        },
    }
    run(session, "pot:b")
    won = run(session, "dip:N").result
    assert (won.state, won.done, won.actions, won.actions_left) == ("WIN", True, [], 2)
    assert won.change_kinds == {"0->1": 2}
    assert won.changed_cells == [[4, 3, 0, 1], [4, 4, 0, 1]]


def test_max_cells_caps_the_list_and_counts_the_rest(game: DipWheel) -> None:
    session = GameSession(game, 2, 0, max_cells=1)
    result = run(session, "pot:a" if session.state.pot else "pot:b").result
    assert (result.cells_changed, len(result.changed_cells), result.changed_omitted) == (2, 1, 1)
    assert sum(result.change_kinds.values()) == 2


@pytest.mark.parametrize(("tool", "arguments", "reason"), REFUSED)
def test_refused_calls_leave_the_state_unchanged_and_are_counted(
    game: DipWheel, tool: str, arguments: dict[str, Any] | None, reason: str
) -> None:
    session = GameSession(game, 4, 2)
    run(session, "pot:a")
    state, noops = session.state, session.noops
    row = session.call(tool, arguments)
    assert session.state is state
    assert (session.invalid, session.noops, session.acts) == (1, noops, 1)
    assert reason in row.result.observation
    assert (row.tool, row.result.cells_changed, row.result.decisions, row.result.done) == (tool, 0, 1, False)
    # the session still plays on
    assert run(session, "dip:N").result.decisions == 2


def test_an_unknown_tool_is_refused_and_counted(game: DipWheel) -> None:
    session = GameSession(game, 1, 0)
    state = session.state
    with pytest.raises(UserError, match="unknown tool"):
        session.call("reset")
    assert session.state is state
    assert session.invalid == 1


def test_after_the_end_everything_but_status_is_refused(game: DipWheel) -> None:
    session = GameSession(game, 2, 5)
    assert run(session, "dip:NE").result.state == "GAME_OVER"  # the trap
    state = session.state
    for word in bundled().words:
        assert run(session, word).result.observation == "the episode is over"
    assert session.state is state
    assert session.invalid == len(bundled().words)
    status = session.call("status").result
    assert (status.done, status.state, status.observation, status.actions) == (True, "GAME_OVER", "", [])
    for end in (session.unusable, session.text_end):
        with pytest.raises(ValueError, match="over"):
            end()


def test_a_look_costs_an_act_and_status_costs_none(game: DipWheel) -> None:
    session = GameSession(game, 1, 3)
    for spent in range(1, 5):
        assert not session.done
        session.call("status")
        look = session.call("look", {"action": None, "x": None, "y": None}).result
        assert (look.decisions, look.actions_left, look.cells_changed) == (spent, 4 - spent, 0)
        assert look.observation == session.observe()
    assert (session.done, session.noops, session.invalid) == (True, 4, 0)


def test_unusable_replies_and_text_ends_show_in_the_outcome(game: DipWheel) -> None:
    session = GameSession(game, 3, 3)
    session.unusable()
    run(session, "look")
    session.text_end()
    assert session.done
    outcome = session.outcome()
    assert (outcome.text_end, outcome.acts, outcome.noops, outcome.invalid) == (True, 2, 1, 1)
    assert (outcome.cleared, outcome.dead, outcome.budget) == (False, False, 7)
    assert outcome.progress == outcome.progress0
    assert session.call("status").result.state == "GAME_OVER"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from((1, 2, 3, 4, 5, 6)), st.integers(0, 500), st.data())
def test_counters_follow_the_journal(game: DipWheel, level: int, seed: int, data: st.DataObject) -> None:
    session = GameSession(game, level, seed)
    noops = 0
    while not session.done:
        before = session.observe()
        row = run(session, data.draw(st.sampled_from((*bundled().words, "look"))))
        noops += row.result.cells_changed == 0
        assert row.result.decisions + row.result.actions_left == session.state.budget
        # a no-op is what a player can't see either; a closed trap is the one change that the text doesn't
        # show
        if not session.state.dead:
            assert (row.result.cells_changed == 0) == (row.result.observation == before)
    outcome = session.outcome()
    assert (outcome.noops, outcome.invalid) == (noops, 0)
    assert outcome.acts == session.state.acts <= outcome.budget
    assert outcome.cleared == (outcome.progress == 1.0)


def test_equal_calls_give_equal_journals(game: DipWheel) -> None:
    def journal() -> list[str]:
        session = GameSession(game, 4, 9)
        return [run(session, word).model_dump_json() for word in ("pot:a", "dip:N", "look", "dip:SE", "dip:S")]

    assert journal() == journal()
