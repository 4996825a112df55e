from __future__ import annotations

import pytest

from internalize.errors import StudyError
from internalize.games.dipwheel import DipWheel
from internalize.knowledge.atoms import Atom, HeldOut, Provenance
from internalize.knowledge.bench import Bench
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.knowledge.exploration import Explorer, explore
from internalize.knowledge.holdout import HoldOutSettings, check_subjects, mark

SUBJECTS = ("left", "right", "top", "bottom", "wipe", "trap", "red", "green", "blue")


@pytest.fixture(scope="module")
def true_atoms(game: DipWheel) -> list[Atom]:
    """The true facts and strokes, without trials, and what random play suggests."""
    rules = game.rules
    lexicon = DipwheelLexicon(game)
    atoms = [atom for family in lexicon.families() for atom in family.product()]
    facts = [atom for atom in atoms if atom.fact in rules.facts()]
    bench = Bench(game)
    return [*facts, *lexicon.compose(facts), *Explorer(bench, explore(bench, 200, 0)).proposals()]


def test_subjects_hold_out_their_fact_and_all_that_names_them(true_atoms: list[Atom]) -> None:
    marked = mark(true_atoms, HoldOutSettings(subjects=["wipe", "red"]))
    assert {atom.fact for atom in marked if atom.fact and atom.held_out.held} == {"wipe@S", "red@b"}
    for atom in marked:
        if set(atom.subjects) & {"wipe", "red"}:
            assert atom.held_out == HeldOut(held=True, why="subject"), atom.id
    layers = [atom for atom in marked if atom.family == "layers"]
    assert {atom.held_out.held for atom in layers} == {True, False}
    assert all(atom.held_out.held == ("red" in atom.subjects) for atom in layers)


def test_an_atom_that_betrays_a_held_out_fact_without_naming_it_goes_with_it(true_atoms: list[Atom]) -> None:
    marked = {atom.claim: atom for atom in mark(true_atoms, HoldOutSettings(subjects=["wipe"]))}
    assert marked["dip:S right after dip:S leaves canvas."].held_out.why == "subject"
    assert marked["dip:S makes canvas blank blank blank blank."].held_out.why == "subject"
    assert not marked["dip:S never changes pot."].held_out.held
    assert not marked["dip:N right after dip:N leaves canvas."].held_out.held


def test_the_fraction_is_drawn_from_derived_atoms_alone(true_atoms: list[Atom]) -> None:
    settings = HoldOutSettings(atom_fraction=0.25)
    marked = mark(true_atoms, settings)
    assert not any(atom.held_out.held for atom in marked if atom.fact)
    derived = [atom.held_out.held for atom in marked if not atom.fact]
    assert 0.15 < sum(derived) / len(derived) < 0.35
    assert {atom.held_out.why for atom in marked if atom.held_out.held} == {"fraction"}
    assert not any(atom.held_out.held for atom in mark(true_atoms, HoldOutSettings()))


def test_the_draw_of_one_atom_does_not_depend_on_the_others(true_atoms: list[Atom]) -> None:
    settings = HoldOutSettings(atom_fraction=0.25)
    together = {atom.id: atom.held_out for atom in mark(true_atoms, settings)}
    assert {atom.id: atom.held_out for atom in mark(true_atoms[::-3], settings)}.items() <= together.items()
    renamed = Provenance.of("mutation")
    moved = [atom.model_copy(update={"claim": "other words", "provenance": renamed}) for atom in true_atoms]
    assert {atom.id: atom.held_out for atom in mark(moved, settings)} == together


def test_a_larger_fraction_keeps_what_a_smaller_one_held_out(true_atoms: list[Atom]) -> None:
    small, large = (
        {atom.id for atom in mark(true_atoms, HoldOutSettings(atom_fraction=share)) if atom.held_out.held}
        for share in (0.1, 0.3)
    )
    assert small < large


def test_an_unknown_subject_is_a_study_error() -> None:
    check_subjects(HoldOutSettings(subjects=["wipe"]), SUBJECTS)
    with pytest.raises(StudyError) as error:
        check_subjects(HoldOutSettings(subjects=["wipe", "whipe"]), SUBJECTS)
    assert error.value.got == "whipe"
    assert "wipe" in error.value.expected
