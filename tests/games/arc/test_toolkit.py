"""Our loader and the toolkit's own show the same game."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from internalize.games.arc.game import ArcGame


def test_the_toolkit_offline_shows_the_same_frames(
    game: ArcGame, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the toolkit reads .env of the working directory when it is imported
    arc_agi = pytest.importorskip(
        "arc_agi", reason="the toolkit `arc-agi` is not installed (pip install arc-agi==0.9.9)"
    )
    from arcengine import GameAction

    folder = tmp_path / "environments/ring/00000001"
    folder.mkdir(parents=True)
    (folder / "ring.py").write_text(source)
    (folder / "metadata.json").write_text(json.dumps({"game_id": "ring-00000001", "class_name": "Ring"}))
    arcade = arc_agi.Arcade(
        operation_mode=arc_agi.OperationMode.OFFLINE,
        environments_dir=str(tmp_path / "environments"),
        logger=logging.getLogger("quiet"),
    )
    wrapper = arcade.make("ring-00000001")
    state = game.start(1, 0)
    assert bytes(wrapper.observation_space.frame[-1].astype("uint8")) == state.frame
    for word in ("right", "click:28", "down", "up", "left"):
        action = game.call_words()[word]
        state = game.apply(state, action)
        data = {} if action.x is None else {"x": action.x, "y": action.y}
        shown = wrapper.step(GameAction.from_name(action.action), data=data)
        assert bytes(shown.frame[-1].astype("uint8")) == state.frame
    state = game.apply(state, game.call_words()["click:22"])
    wrapper.step(GameAction.ACTION6, data={"x": 22, "y": 4})
    shown = wrapper.step(GameAction.ACTION5)
    state = game.apply(state, game.call_words()["dip"])
    assert (state.cleared, shown.levels_completed) == (True, 1)
    assert bytes(shown.frame[-2].astype("uint8")) == state.frame, "the toolkit's last frame is the next level"
