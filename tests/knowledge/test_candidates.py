from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from internalize.errors import UserError
from internalize.games.dipwheel import DipWheel, Rules
from internalize.knowledge.atoms import KINDS
from internalize.knowledge.bench import Bench
from internalize.knowledge.candidates import candidates, lexicon_of
from internalize.knowledge.verify import Verifier


def test_candidates_never_ask_the_game_for_its_rules(game: DipWheel, blindfold: Any) -> None:
    hidden = blindfold(game)
    with pytest.raises(AssertionError):
        _ = hidden.rules
    seen = candidates(Bench(hidden), lexicon_of(hidden), 60, 0)
    assert [atom.id for atom in seen.atoms] == [
        atom.id for atom in candidates(Bench(game), lexicon_of(game), 60, 0).atoms
    ]
    verified = [atom for atom in seen.atoms if atom.fact and Verifier(hidden).verdict(atom).status == "verified"]
    assert len(lexicon_of(hidden).compose(verified)) == 84


def test_candidates_cover_the_vocabulary_and_every_kind_once(game: DipWheel) -> None:
    atoms = candidates(Bench(game), lexicon_of(game), 60, 0).atoms
    assert len(atoms) >= 500
    assert len({atom.hash for atom in atoms}) == len({atom.id for atom in atoms}) == len(atoms)
    assert {atom.kind for atom in atoms} == set(KINDS)
    facts = {atom.fact for atom in atoms if atom.fact}
    stations, pots = ("N", "NE", "SE", "S", "SW", "NW"), ("a", "b", "c")
    regions, colours = ("left", "right", "top", "bottom", "wipe", "trap"), ("red", "green", "blue")
    assert facts == {f"{r}@{s}" for r in regions for s in stations} | {f"{c}@{p}" for c in colours for p in pots}


def test_the_vocabulary_proposes_the_same_under_every_rule_set(game: DipWheel) -> None:
    other = DipWheel(Rules(tuple(reversed(game.rules.regions)), tuple(reversed(game.rules.paints))))
    generated = [
        {
            atom.hash
            for atom in candidates(Bench(g), lexicon_of(g), 6, 0).atoms
            if atom.provenance.origins[0].origin == "generator"
        }
        for g in (game, other)
    ]
    assert generated[0] == generated[1]


def test_claims_that_play_suggests_too_name_both_origins(game: DipWheel) -> None:
    atoms = candidates(Bench(game), lexicon_of(game), 200, 0).atoms
    both = [atom for atom in atoms if len(atom.provenance.origins) == 2]
    assert {atom.fact for atom in both if atom.fact} >= set(game.rules.facts())
    assert all([o.origin for o in atom.provenance.origins] == ["generator", "exploration"] for atom in both)
    only = Counter(origin.origin for atom in atoms for origin in atom.provenance.origins)
    assert only["exploration"] > len(both)


def test_a_game_without_a_lexicon_is_a_user_error(lamp: Any) -> None:
    with pytest.raises(UserError) as error:
        lexicon_of(lamp)
    assert error.value.got == "lamp"
