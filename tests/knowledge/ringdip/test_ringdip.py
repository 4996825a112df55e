"""The generator of atoms for ring-and-dip games, on level 2 of the ARC adapter's test game."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from ring_layout import LAYOUT, OPPOSITE
from toolkit_here import need_engine

from internalize.games.arc.engine import game_class
from internalize.games.arc.game import ArcGame
from internalize.games.arc.ringdip import RingDip
from internalize.knowledge.atoms import Atom, Provenance, merge
from internalize.knowledge.recall import Recaller
from internalize.knowledge.ringdip import RingDipLexicon
from internalize.knowledge.stage import Tested
from internalize.knowledge.verify import Verifier

VERIFIED = {
    "move": 16,
    "stay": 16,
    "load": 3,
    "load_at": 3 * 8,
    "dip": 8,
    "stroke": 3 * 8,
    "tap": 4,
    "dab": 3 * 4,
    "miss": 8 * 4 - 4,
    "cells": 3,
}
"""Verified atoms by family: 138 in one level."""


@pytest.fixture(scope="module")
def game() -> ArcGame:
    need_engine()
    source = (Path(__file__).parents[2] / "games/arc/ring.py").read_text()
    made = ArcGame(game_class(source, "Ring"), RingDip(LAYOUT), "ring-00000001")
    made.__dict__["levels"] = (2,)  # one level of three keeps the test short
    return made


@pytest.fixture(scope="module")
def lexicon(game: ArcGame) -> RingDipLexicon:
    return RingDipLexicon(game)


@pytest.fixture(scope="module")
def tested(game: ArcGame, lexicon: RingDipLexicon) -> tuple[list[Atom], Tested]:
    """All candidates, tried."""
    verifier = Verifier(game, trials=6, min_counted=2)  # few, for time
    families = {family.name: family for family in lexicon.composites()}
    run = Tested(verifier, families, lambda _: None)
    watched = Provenance.of("exploration")
    steps = lexicon.sweep(verifier.bench)
    seen = merge([families[name].atom(terms, watched) for step in steps for name, terms in lexicon.notice(step)])
    first = run.run(seen, "seen")
    verified = [atom for atom in first if atom.status == "verified"]
    known = {atom.hash for atom in first}
    composed = [atom for atom in merge(list(lexicon.compose(verified))) if atom.hash not in known]
    return [*first, *run.run(composed, "composed")], run


def test_the_generator_finds_and_verifies_its_atoms(tested: tuple[list[Atom], Tested]) -> None:
    atoms, _ = tested
    assert Counter(atom.family for atom in atoms if atom.status == "verified") == VERIFIED
    assert sum(VERIFIED.values()) == 138
    assert Counter(atom.status for atom in atoms) == {"verified": 138}, "no claim asks for what cannot be met"
    asked = {condition.probe for atom in atoms for condition in atom.test.pre}
    assert "small" not in asked, "the small tool follows from the place: asking for it too made walks fail"


def test_every_mutated_claim_is_refuted(tested: tuple[list[Atom], Tested]) -> None:
    atoms, run = tested
    verified = [atom for atom in atoms if atom.status == "verified"]
    assert all(atom.verdict is not None and atom.verdict.mutants > 0 for atom in verified)
    assert all(mutant.status == "refuted" for atom in verified for mutant in run.mutants(atom))


def test_the_facts_are_the_dips_of_the_game(tested: tuple[list[Atom], Tested], lexicon: RingDipLexicon) -> None:
    facts = {atom.fact for atom in tested[0] if atom.fact and atom.status == "verified"}
    assert facts == {f"{region}@{station}" for station, region in OPPOSITE.items()}
    assert sorted(fact.partition("@")[0] for fact in facts if fact) == sorted(lexicon.subjects())


def test_forms_ask_without_telling(tested: tuple[list[Atom], Tested], lexicon: RingDipLexicon) -> None:
    atoms, run = tested
    recaller = Recaller(lexicon, (), run.mutants, [], ["paraphrase"])
    for atom in atoms:
        forms = {(form.form, form.wording): form for form in lexicon.forms(atom)}
        question, statement = forms["qa", "other"], forms["declarative", "think"]
        assert question.prompt.endswith("?")
        assert statement.answer == atom.claim != forms["paraphrase", "other"].answer
    by_family = {atom.family: atom for atom in atoms if atom.status == "verified"}
    dip = by_family["dip"]
    said = recaller.forms(dip)
    assert all(form.expressible for form in said), "an open vocabulary says everything"
    assert {form.label for form in said if form.form == "claimform"} == {True, False}
    gap = next(form for form in said if form.form == "cloze")
    assert "____" in gap.prompt
    assert gap.answer == dip.terms["region"]


def test_everything_is_mentioned(tested: tuple[list[Atom], Tested], lexicon: RingDipLexicon) -> None:
    verified = [atom for atom in tested[0] if atom.status == "verified"]
    for name, values in lexicon.dimensions.items():
        assert set().union(*(lexicon.mentions(atom, name) for atom in verified)) == set(values), name
