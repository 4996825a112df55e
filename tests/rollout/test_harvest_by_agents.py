"""A harvest that an agent plays: everything it leaves is kept, what failed is counted and has no part."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from doubles import Double

from internalize.errors import UserError
from internalize.harness import choose
from internalize.harness.episode import read_episodes
from internalize.rollout.harvest import build

FILES = {"calls.jsonl", "journal.jsonl", "transcript.jsonl", "double.log", "settings.json", "mcp.json"}


@dataclass
class FakeInput:
    payload: Path
    facts: dict[str, Any] = field(default_factory=dict)


def _build(folder: Path, base: Path, game: dict[str, Any], episodes: int) -> dict[str, Any]:
    harness = {"type": "double", "parallel": 2, "seconds": 60.0}
    spec = {
        "game": game,
        "harvest": {"policy": "base", "episodes": episodes, "seed": 3, "harness": harness},
        "levels": [1, 2],
        "rollout": {"temperature": 1.0, "max_new_tokens": 12},
    }
    inputs: Any = {"base": FakeInput(base), "knowledge": FakeInput(base, {"prompt_facts": []})}
    return build(folder, spec, inputs, lambda text: None)


def test_records_are_kept_and_failures_counted(
    tmp_path: Path, base_folder: Path, game_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Double(hows={"harvest-base-0001": "bad status"})
    monkeypatch.setitem(choose.AGENTS, "double", lambda: failing)
    facts = _build(tmp_path, base_folder, game_settings, 3)
    episodes = read_episodes(tmp_path)
    assert [e.reason for e in episodes] == [None, "exit_status", None]
    assert (facts["episodes"], facts["valid"], facts["invalid"]) == (3, 2, {"exit_status": 1})
    valid = [e for e in episodes if e.valid]
    assert facts["return_mean"] == pytest.approx(sum(e.returned for e in valid) / 2, abs=1e-6)
    for episode in episodes:
        place = tmp_path / "work" / episode.plan.id
        assert {path.name for path in place.iterdir()} == FILES
        assert len((place / "calls.jsonl").read_text().splitlines()) == len(episode.calls)


def test_a_harvest_of_which_nothing_counts_is_an_error(
    tmp_path: Path, base_folder: Path, game_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(choose.AGENTS, "double", lambda: Double("bad status"))
    with pytest.raises(UserError, match="no episode counts") as caught:
        _build(tmp_path, base_folder, game_settings, 1)
    assert "exit_status: 1" in str(caught.value)
    assert len(read_episodes(tmp_path)) == 1, "it is recorded all the same"
