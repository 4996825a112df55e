"""The gate: the shipped base passes, an empty one fails with figures that help."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from internalize.base import gate
from internalize.base.play import Side
from internalize.errors import GateFailed, UserError
from internalize.files import read_json
from internalize.games.dipwheel import DipWheel
from internalize.games.shaping import Outcome
from internalize.harness.episode import Episode, EpisodePlan, read_episodes
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.language.sayings import write_sayings

BOUNDS = {
    "teacher_clears_min": 0.9,
    "base_clears_max": 0.1,
    "wrong_rules_clears_max": 0.1,
    "episodes": 64,
    "seed": 7,
}


def side(clears: int, episodes: int = 100) -> Side:
    return Side(
        [
            Episode(
                EpisodePlan(f"e{i}", 1, i, i, 0),
                [],
                [],
                Outcome(i < clears, False, False, 1, 0, 0, 4, 0.0, 1.0),
                {},
                float(i < clears),
            )
            for i in range(episodes)
        ]
    )


def inputs(base: Path, game: DipWheel, folder: Path) -> dict[str, Any]:
    lexicon = DipwheelLexicon(game)
    write_sayings(folder, lexicon.sayings(), lexicon.places())
    return {
        "base": SimpleNamespace(payload=base),
        "knowledge": SimpleNamespace(payload=folder, facts={"prompt_facts": sorted(game.rules.facts())}),
    }


def test_the_shipped_base_passes(
    repository: Path, game: DipWheel, game_settings: dict[str, Any], tmp_path: Path
) -> None:
    spec = {"game": game_settings, "gate": BOUNDS}
    facts = gate.build(tmp_path, spec, inputs(repository / "prebuilt" / "dipwheel", game, tmp_path), lambda text: None)
    assert facts["passed"] is True
    assert facts["teacher"]["clear_rate"] > 0.9
    assert facts["base"]["clear_rate"] < 0.15
    assert facts["base"]["clear_rate"] < facts["partial"]["clear_rate"] < facts["teacher"]["clear_rate"]
    assert facts["reference"]["episodes"] == 64
    assert facts["reference"]["calls_per_episode"] > 3
    assert facts["reference"]["think_tokens"] > 3
    assert read_json(tmp_path / "gate.json")["teacher"] == facts["teacher"]
    assert len(read_episodes(tmp_path / "base")) == 64
    knowing = read_episodes(tmp_path / "teacher")[0].calls[0].prompt_ids
    assert len(knowing) == len(read_episodes(tmp_path / "base")[0].calls[0].prompt_ids) + 10


def test_equal_seeds_give_equal_figures(
    repository: Path, game: DipWheel, game_settings: dict[str, Any], tmp_path: Path
) -> None:
    spec = {
        "game": game_settings,
        "gate": {**BOUNDS, "episodes": 8, "teacher_clears_min": 0.0, "base_clears_max": 1.0},
    }
    given = inputs(repository / "prebuilt" / "dipwheel", game, tmp_path)
    one = gate.build(tmp_path / "one", spec, given, lambda text: None)
    assert one == gate.build(tmp_path / "two", spec, given, lambda text: None)


@pytest.mark.parametrize(
    ("teacher", "base", "wrong", "word"),
    [(89, 5, 0, "with the facts"), (95, 11, 0, "without facts"), (95, 5, 11, "with false facts")],
)
def test_each_bound_fails_with_its_figures(teacher: int, base: int, wrong: int, word: str) -> None:
    sides = {"teacher": side(teacher), "base": side(base), "wrong_rules": side(wrong), "partial": side(40)}
    verdict = gate.Verdict(sides, list(gate._shortfalls(sides, BOUNDS)))
    assert not verdict.passed
    with pytest.raises(GateFailed) as error:
        gate.require(verdict, BOUNDS)
    text = str(error.value)
    assert word in text
    assert f"teacher {teacher}/100" in text
    assert "recipe.steps" in text
    assert isinstance(error.value, UserError)


def test_bounds_that_are_met_exactly_pass() -> None:
    sides = {"teacher": side(90), "base": side(10), "wrong_rules": side(10), "partial": side(0)}
    assert list(gate._shortfalls(sides, BOUNDS)) == []


@pytest.mark.parametrize("seed", range(20))
def test_wrong_facts_are_a_complete_rule_set_of_which_none_is_true(game: DipWheel, seed: int) -> None:
    facts = game.rules.facts()
    lies = gate.wrong_facts(facts, DipwheelLexicon(game).places(), random.Random(seed))
    assert not set(lies) & set(facts)
    assert sorted(f.split("@")[0] for f in lies) == sorted(f.split("@")[0] for f in facts)
    assert sorted(f.split("@")[1] for f in lies) == sorted(f.split("@")[1] for f in facts)
