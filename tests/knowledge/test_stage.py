from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from internalize.errors import StudyError, UserError
from internalize.files import read_jsonl, sha256_file
from internalize.games.dipwheel import DipWheel, Rules, random_rules
from internalize.games.dipwheel.rules import POTS, STATIONS
from internalize.knowledge import stage
from internalize.knowledge.atoms import Atom, Counterexample
from internalize.knowledge.bench import Bench
from internalize.knowledge.dsl import Judgement, judge, satisfied
from internalize.knowledge.stage import build
from internalize.knowledge.verify import replay

PAYLOAD = ("atoms.jsonl", "coverage.json", "ledger.jsonl", "recall.jsonl", "report.md", "sayings.json")


def small(spec: dict[str, Any], **knowledge: Any) -> dict[str, Any]:
    """The study's settings with fewer trials and less play."""
    lean = {**spec["knowledge"], "trials": 8, "exploration": {"episodes": 12, "seed": 0}, **knowledge}
    return {"game": spec["game"], "knowledge": lean}


def quiet(message: str) -> None:
    return


def test_the_study_gets_its_nine_facts_and_a_few_hundred_atoms(built: Any, rules: Rules) -> None:
    assert sorted(path.name for path in built.folder.iterdir()) == list(PAYLOAD)
    assert built.facts["prompt_facts"] == sorted(rules.facts())
    assert built.facts["held_out_facts"] == ["wipe@S"]
    assert built.facts["atoms_verified"] >= 200
    assert built.facts["candidates"] >= 500
    assert built.facts["atoms_held_out"] == sum(atom.held_out.held for atom in built.atoms)
    assert {atom.status for atom in built.atoms} == {"verified"}
    assert built.messages


def test_every_verified_atom_stood_its_negative_control(built: Any) -> None:
    ledger = {row["id"]: row["verdict"]["status"] for row in read_jsonl(built.folder / "ledger.jsonl")}
    for atom in built.atoms:
        assert atom.verdict.mutants >= 1, atom.id
        assert atom.verdict.survivors == []
    assert set(ledger.values()) <= {"verified", "refuted", "vacuous"}


def test_the_ledger_keeps_every_claim_and_false_ones_replay(built: Any, rules: Rules) -> None:
    rows = list(read_jsonl(built.folder / "ledger.jsonl"))
    assert len(rows) == built.facts["candidates"] + built.facts["mutants"]
    assert len({row["hash"] for row in rows}) == len(rows)
    assert {row["id"] for row in rows} >= {atom.id for atom in built.atoms}
    facts = {row["fact"]: row["verdict"]["status"] for row in rows if row.get("fact")}
    assert len(facts) == 45
    assert {fact for fact, status in facts.items() if status == "verified"} == set(rules.facts())
    assert {status for fact, status in facts.items() if fact not in rules.facts()} == {"refuted"}
    refuted = [row for row in rows if row["verdict"]["status"] == "refuted"]
    assert len(refuted) > 800
    for row in random.Random(0).sample(refuted, 150):
        del row["hash"]
        atom = Atom.model_validate({**row, "terms": {}})
        example = Counterexample.model_validate(row["verdict"]["counterexample"])
        assert replay(Bench(DipWheel(rules)), atom.test, example) is Judgement.FAILED, row["id"]


def test_other_rules_give_their_own_facts_and_equal_bytes_and_are_never_read(
    tmp_path: Path,
    spec: dict[str, Any],
    rules: Rules,
    blindfold: Any,
    read_atoms: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One run hides rules, plans and advice; the other is a new process with another hash seed."""
    other_rules = random_rules(random.Random(2), exclude_regions=rules.regions)
    stated = {
        "stations": dict(zip(STATIONS, other_rules.regions, strict=True)),
        "pots": dict(zip(POTS, other_rules.paints, strict=True)),
    }
    settings = small(spec) | {"game": {"kind": "dipwheel", "rules": stated}}
    make = stage.make_game
    monkeypatch.setattr(stage, "make_game", lambda kind, **settings: blindfold(make(kind, **settings)))
    facts = build(tmp_path / "a", settings, {}, quiet)
    assert facts["prompt_facts"] == sorted(other_rules.facts())
    hold_against_fresh_play(read_atoms(tmp_path / "a" / "atoms.jsonl"), other_rules)
    code = "import json, pathlib, sys; from internalize.knowledge.stage import build; a, b = sys.argv[1:]; "
    code += "print(json.dumps(build(pathlib.Path(a), json.loads(b), {}, lambda message: None)))"
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "b"), json.dumps(settings)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(other.stdout) == facts
    for name in PAYLOAD:
        assert sha256_file(tmp_path / "a" / name) == sha256_file(tmp_path / "b" / name), name


def test_no_atom_of_the_study_contradicts_its_rules(built: Any, rules: Rules) -> None:
    hold_against_fresh_play(built.atoms, rules)


def hold_against_fresh_play(atoms: list[Atom], rules: Rules) -> None:
    """No atom may fail in play, half of it by the planner, that its trials never saw; nearly all must be met there."""
    game = DipWheel(rules)
    bench = Bench(game, seed=10**6)
    spots = fresh_play(game, bench, random.Random(0))
    tested = set()
    for atom in atoms:
        for first, spot in spots:
            fits = spot.level in atom.scope.levels and satisfied(atom.test.start, first.probes)
            if not fits or not satisfied(atom.test.pre, spot.probes):
                continue
            before = bench.walk(spot, atom.test.setup)
            for choice in atom.test.choices():
                after = bench.walk(before, choice)
                if before is not None and after is not None:
                    tested.add(atom.id)
                    assert judge(atom.test, before.probes, after.probes) is not Judgement.FAILED, atom.claim
    assert len(tested) >= 0.9 * len(atoms)


def fresh_play(game: DipWheel, bench: Bench, draw: random.Random) -> list[tuple[Any, Any]]:
    """(first spot, spot) of 60 episodes; half of their acts are random, the others follow the planner."""
    words = {action: word for word, action in bench.calls.items()}
    pairs = []
    for episode in range(60):
        spot = first = bench.start(game.levels[episode % 6], 10**6 + draw.randrange(10**6))
        pairs.append((first, first))
        while not spot.state.done:
            word = draw.choice(bench.words) if draw.random() < 0.5 else words[game.plan(spot.state)[0]]
            after = bench.step(spot, word)
            assert after is not None
            spot = after
            pairs.append((first, spot))
    return pairs


def test_level_facts_hold_at_many_more_starts(built: Any, game: DipWheel) -> None:
    atoms = [atom for atom in built.atoms if atom.kind in ("level_fact", "initial_state")]
    assert len(atoms) > 25
    bench = Bench(game)
    for level in game.levels:
        mine = [atom for atom in atoms if atom.scope.levels == [level]]
        for seed in range(400):
            probes = bench.start(level, seed).probes
            for atom in mine:
                if satisfied(atom.test.start, probes):
                    assert judge(atom.test, probes, probes) is Judgement.HELD, atom.claim


def test_too_few_trials_are_a_user_error_that_says_what_is_missing(tmp_path: Path, spec: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        build(tmp_path, small(spec, trials=1), {}, quiet)
    assert "missing: blue bottom" in error.value.got
    assert "trials" in error.value.fix
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"trails": 20}, "knowledge.trails"),
        ({"trials": 0}, "knowledge.trials"),
        ({"trials": "many"}, "knowledge.trials"),
        ({"held_out": {"atom_fraction": 1.5}}, "knowledge.held_out.atom_fraction"),
        ({"held_out": {"forms": ["song"]}}, "knowledge.held_out.forms.0"),
        ({"held_out": {"subjects": ["middle"]}}, "knowledge.held_out.subjects"),
        ({"exploration": {"episodes": 0}}, "knowledge.exploration.episodes"),
    ],
)
def test_bad_settings_are_study_errors_that_name_the_key(
    tmp_path: Path, spec: dict[str, Any], change: dict[str, Any], place: str
) -> None:
    with pytest.raises(StudyError) as error:
        build(tmp_path, small(spec, **change), {}, quiet)
    assert error.value.where == place


def test_an_unknown_game_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="game"):
        build(tmp_path, {"game": {"kind": "chess"}, "knowledge": {}}, {}, quiet)
