from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from internalize.errors import UserError
from internalize.files import read_json, write_json
from internalize.games import make_game
from internalize.harness.episode import read_episodes
from internalize.rollout.actor import load_engine
from internalize.rollout.harvest import build
from internalize.rollout.plans import BAND_BITS, BANDS

FACTS = ["blue@a", "bottom@NW", "green@c", "left@N", "red@b", "right@SW", "top@SE", "trap@NE", "wipe@S"]


@dataclass
class FakeInput:
    payload: Path
    facts: dict[str, Any] = field(default_factory=dict)


def _build(folder: Path, base: Path, game: dict[str, Any], **harvest: Any) -> dict[str, Any]:
    spec = {
        "game": game,
        "harvest": {"policy": "teacher", "episodes": 6, "seed": 3, **harvest},
        "levels": [1, 2, 3, 4],
        "rollout": {"episodes": 32, "group_size": 4, "temperature": 1.0, "max_new_tokens": 12},
    }
    inputs: Any = {"base": FakeInput(base), "knowledge": FakeInput(base, {"prompt_facts": FACTS})}
    return build(folder, spec, inputs, lambda text: None)


def test_teacher_is_told_the_facts_and_the_base_is_not(
    tmp_path: Path, base_folder: Path, game_settings: dict[str, Any]
) -> None:
    facts = _build(tmp_path / "teacher", base_folder, game_settings)
    own = _build(tmp_path / "own", base_folder, game_settings, policy="base")
    teacher, base = read_episodes(tmp_path / "teacher"), read_episodes(tmp_path / "own")
    _, template, _ = load_engine(base_folder)
    for told, alone in zip(teacher, base, strict=True):
        words = template.vocab.decode(told.calls[0].prompt_ids).split()
        assert sorted(words[2:11]) == FACTS
        assert "know" not in template.vocab.decode(alone.calls[0].prompt_ids).split()
        assert (told.plan.level, told.plan.seed) == (alone.plan.level, alone.plan.seed)
        assert BANDS[told.plan.seed >> BAND_BITS] == "harvest"
        assert told.unknown_words == 0
    assert (facts["policy"], own["policy"], facts["episodes"], facts["valid"]) == ("teacher", "base", 6, 6)
    assert facts["clears"] == sum(e.outcome.cleared for e in teacher)
    assert facts["calls"] == sum(len(e.calls) for e in teacher)
    assert facts["return_mean"] == pytest.approx(sum(e.returned for e in teacher) / 6, abs=1e-6)


def test_two_builds_are_equal_bytes(tmp_path: Path, base_folder: Path, game_settings: dict[str, Any]) -> None:
    facts = [_build(tmp_path / n, base_folder, game_settings) for n in "ab"]
    assert facts[0] == facts[1]
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == ["calls.jsonl.zst", "episodes.jsonl", "journal.jsonl.zst"]
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names)
    other = _build(tmp_path / "c", base_folder, game_settings, seed=4)
    assert (tmp_path / "c" / "calls.jsonl.zst").read_bytes() != (tmp_path / "a" / "calls.jsonl.zst").read_bytes()
    assert other["episodes"] == 6


def test_unknown_policy_is_refused(tmp_path: Path, base_folder: Path, game_settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="teacher or base"):
        _build(tmp_path, base_folder, game_settings, policy="random")


def test_load_engine_holds_the_folders_tensors(base_folder: Path, game_settings: dict[str, Any]) -> None:
    engine, template, config = load_engine(base_folder, slots=4, max_len=64, game=make_game(**game_settings))
    assert (engine.slots, engine.max_len) == (4, 64)
    assert config["vocab_size"] == len(template.vocab)
    again, _, _ = load_engine(base_folder)
    assert engine.weight_version == again.weight_version
    assert torch.equal(engine.score([[1, 2, 3]])[0], again.score([[1, 2, 3]])[0])


def test_a_vocabulary_that_does_not_fit_the_model_is_refused(tmp_path: Path, base_folder: Path) -> None:
    folder = tmp_path / "base"
    shutil.copytree(base_folder, folder)
    write_json(folder / "config.json", read_json(folder / "config.json") | {"vocab_size": 9})
    with pytest.raises(UserError, match="larger"):
        load_engine(folder)
