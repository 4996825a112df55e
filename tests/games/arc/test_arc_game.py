"""An ARC game as a pure game: levels, budget, resets, clears, determinism, and what reaches standard output."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ring_layout import LAYOUT

from internalize.errors import CorruptPayload, UserError
from internalize.games import make_game
from internalize.games.arc import place
from internalize.games.arc.game import ArcGame, ArcState
from internalize.games.arc.ringdip import Box, RingDip
from internalize.games.arc.text import run_length
from internalize.games.protocol import Action
from internalize.games.session import GameSession

DIGEST = "d4795f8a818c1419"
"""SHA-256 over the frames of a seeded random play: equal on Python 3.11 and 3.12."""


def play(game: ArcGame, state: ArcState, words: list[str]) -> ArcState:
    calls = game.call_words()
    for word in words:
        state = game.apply(state, calls[word])
    return state


def test_levels_start_where_they_are_asked_for(game: ArcGame) -> None:
    assert game.levels == (1, 2, 3)
    starts = [game.probes(game.start(level, 0)) for level in game.levels]
    assert [probes["swatches"] for probes in starts] == [[8, 9], [8, 9, 14], [8, 9]]
    assert {(p["station"], p["paint"], p["actions_left"], tuple(p["canvas"])) for p in starts} == {
        ("N", 8, 19, (0,) * 16)
    }
    with pytest.raises(UserError, match="unknown level"):
        game.start(4, 0)


def test_a_clear_is_judged_on_the_cleared_levels_own_frame(game: ArcGame) -> None:
    start = game.start(1, 0)
    cleared = play(game, start, ["dip"])
    probes = game.probes(cleared)
    assert (cleared.cleared, cleared.done, cleared.frames) == (True, True, 3)
    assert probes["canvas"] == probes["target"], "not the next level's canvas"
    assert game.progress(cleared) == 1.0 > game.progress(start)


def test_the_last_levels_win_adds_no_frame(game: ArcGame) -> None:
    state = play(game, game.start(3, 0), game.board.plan(game.start(3, 0).frame))
    assert (state.cleared, state.frames, game.probes(state)["canvas"]) == (True, 3, [9, 9, 8, 8] * 4)


@pytest.mark.parametrize(("level", "acts"), [(1, 1), (2, 11), (3, 9)])
def test_plans_clear_their_level(game: ArcGame, level: int, acts: int) -> None:
    state = game.start(level, 0)
    words = game.board.plan(state.frame)
    assert len(words) == acts
    assert play(game, state, words).cleared


def test_no_reset_reaches_the_engine(game: ArcGame) -> None:
    state = play(game, game.start(2, 0), ["right"])
    for name in ("RESET", "reset", "ACTION0", "ACTION7", "ACTION9"):
        assert "unknown action" in str(game.refuse(state, Action(name)))
        with pytest.raises(ValueError, match="unknown action"):
            game.apply(state, Action(name))
    engine = game._taken((2, 0, state.moves))
    with pytest.raises(ValueError, match="a reset"):
        engine.act(0)
    assert all(spec.action_type != "RESET" for spec in game.actions(state))


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Action("ACTION6"), "needs x and y"),
        (Action("ACTION6", 3), "needs x and y"),
        (Action("ACTION6", 64, 0), "outside"),
        (Action("ACTION6", 3, -1), "outside"),
        (Action("ACTION1", 3, 4), "no coordinates"),
    ],
)
def test_an_invalid_action_costs_nothing(game: ArcGame, action: Action, reason: str) -> None:
    session = GameSession(game, 1, 0)
    before = session.state
    row = session.call("act", action._asdict())
    assert reason in row.result.observation
    assert (session.state, session.invalid, row.result.actions_left) == (before, 1, 19)


def test_the_budget_is_what_can_be_used(game: ArcGame) -> None:
    state = game.start(2, 0)
    for spent in range(19):
        assert (state.done, state.acts) == (False, spent)
        state = play(game, state, ["up"])
    assert (state.done, state.dead, state.acts) == (True, False, 19)
    after = game._taken((2, 0, state.moves)).act(5)
    assert after.dead, "the engine ends the game with the twentieth act"
    assert game.refuse(state, Action("ACTION1")) == "the episode is over"


def test_a_look_costs_us_an_act_and_the_engine_none(game: ArcGame) -> None:
    state = game.idle(game.idle(game.start(1, 0)))
    assert (state.acts, state.moves, game.probes(state)["actions_left"]) == (2, (), 17)


def test_states_are_pure_however_they_are_left(game: ArcGame) -> None:
    start = game.start(2, 0)
    here = play(game, start, ["right", "click:28"])
    calls = game.call_words()
    once = {word: game.apply(here, action) for word, action in calls.items()}
    game._engines.clear()
    game._shown.clear()
    again = {word: game.apply(here, action) for word, action in reversed(calls.items())}
    assert once == again
    assert here == play(game, start, ["right", "click:28"])


def test_frames_are_the_same_everywhere(game: ArcGame) -> None:
    rng, digest = random.Random(0), hashlib.sha256()
    actions = list(game.call_words().values())
    for episode in range(6):
        state = game.start(episode % 3 + 1, episode)
        while not state.done:
            state = game.apply(state, rng.choice(actions))
            digest.update(state.frame)
    assert digest.hexdigest()[:16] == DIGEST


def test_nothing_is_printed_to_standard_output(game: ArcGame, capsys: pytest.CaptureFixture[str]) -> None:
    play(game, game.start(1, 0), ["right", "dip", "click:28"])
    out, error = capsys.readouterr()
    assert out == ""
    assert "a game that talks" in error


def _rows(text: str) -> dict[int, tuple[int, ...]]:
    """Row number -> colours, read back from the text."""
    rows: dict[int, tuple[int, ...]] = {}
    for line in text.splitlines():
        where, _, runs = line.partition(": ")
        first, _, last = where.partition("-")
        pairs = [run.split("x") for run in runs.split()]
        row = tuple(int(colour) for colour, count in pairs for _ in range(int(count)))
        rows |= dict.fromkeys(range(int(first), int(last or first) + 1), row)
    return rows


def test_the_text_says_the_whole_frame_without_counters(game: ArcGame) -> None:
    state = game.start(2, 0)
    text = run_length(state.frame, game.hud_rows)
    rows = _rows(text)
    assert rows == {y: row for y, row in enumerate(game.frame(state)) if y != 63}
    assert game.observe(state) == f"level 2, 19 acts left\n{text}"
    same = play(game, state, ["up"])
    assert run_length(same.frame, game.hud_rows) == text
    assert same.frame != state.frame, "the counter moves"


def test_a_no_op_changes_no_cell_outside_the_counters(game: ArcGame) -> None:
    session = GameSession(game, 1, 0)
    row = session.call("act", {"action": "ACTION1", "x": None, "y": None})
    assert (row.result.cells_changed, row.result.change_kinds, session.noops) == (0, {}, 1)
    assert session.call("act", {"action": "ACTION4"}).result.cells_changed > 0


def test_a_session_ends_with_the_level(game: ArcGame) -> None:
    session = GameSession(game, 1, 0)
    row = session.call("act", {"action": "ACTION5"})
    assert (row.result.done, row.result.state, row.result.actions) == (True, "WIN", [])
    assert session.outcome().cleared


def settings(path: Path, sha256: str) -> dict[str, Any]:
    return {"id": "ring-00000001", "sha256": sha256, "file": str(path)}


@pytest.fixture
def as_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("internalize.games.arc", fromlist=["BOARDS"]).BOARDS, "ring", "ring_layout")


def test_a_game_is_made_from_the_users_file(
    engine_installed: None, as_board: None, tmp_path: Path, source: str, source_sha256: str
) -> None:
    path = tmp_path / "ring.py"
    path.write_text(source)
    made = make_game("arc", **settings(path, source_sha256))
    assert (made.name, made.levels) == ("ringdip", (1, 2, 3))
    with pytest.raises(UserError, match="an episode is one level"):
        make_game("arc", level_cap=2, **settings(path, source_sha256))


def test_another_file_is_refused_before_it_runs(
    as_board: None, tmp_path: Path, source: str, source_sha256: str
) -> None:
    path = tmp_path / "ring.py"
    path.write_text(source + "\nraise SystemExit('executed')\n")
    with pytest.raises(CorruptPayload, match="not the one that the study names"):
        make_game("arc", **settings(path, source_sha256))


def test_a_missing_file_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(place.FOLDER, str(tmp_path))
    with pytest.raises(UserError, match="is not here") as caught:
        make_game("arc", id="ring-00000001", sha256="0" * 64)
    assert str(tmp_path / "ring/00000001/ring.py") in caught.value.where
    assert "ARC_API_KEY" in caught.value.fix


def test_a_game_without_a_board_is_named(
    tmp_path: Path, source: str, source_sha256: str, engine_installed: None
) -> None:
    path = tmp_path / "ring.py"
    path.write_text(source)
    with pytest.raises(UserError, match="no board for this game"):
        make_game("arc", **settings(path, source_sha256))


def test_the_board_is_held_against_the_game(game: ArcGame) -> None:
    assert game.board.misfits(game) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"strip": 3}, "no swatch"),
        ({"clicks": (22, 28)}, "level 2: clicks load [8, 9], the strip shows [8, 9, 14]"),
        ({"canvas": Box(33, 34, 4, 4)}, "the canvas is not blank"),
        ({"stations": dict(list(LAYOUT.stations.items())[:7])}, "the walk around the ring shows ''"),
    ],
)
def test_a_board_that_does_not_fit_says_where(game: ArcGame, change: dict[str, Any], complaint: str) -> None:
    wrong = RingDip(replace(LAYOUT, **change))
    game.board = wrong
    assert any(complaint in line for line in wrong.misfits(game)), wrong.misfits(game)
