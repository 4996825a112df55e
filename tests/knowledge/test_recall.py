from __future__ import annotations

from collections import defaultdict
from typing import Any

from internalize.games.dipwheel import DipWheel, Rules
from internalize.knowledge.atoms import FORMS, Atom, Recall
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.knowledge.recall import Recaller, recall_rows
from internalize.language.vocabulary import Vocabulary


def facts_of(atoms: list[Atom]) -> list[Atom]:
    return [atom for atom in atoms if atom.fact]


def by_form(atom: Atom) -> dict[str, list[Recall]]:
    forms: dict[str, list[Recall]] = defaultdict(list)
    for form in atom.recall:
        forms[form.form].append(form)
    return forms


def test_expressible_forms_are_in_the_closed_vocabulary(built: Any, game: DipWheel) -> None:
    vocabulary = Vocabulary.of(game.words())
    for atom in built.atoms:
        for form in atom.recall:
            if form.expressible:
                vocabulary.encode(f"{form.prompt} {form.answer}")
    assert vocabulary.unknown == 0
    assert any(not form.expressible for atom in built.atoms for form in atom.recall)


def test_each_play_fact_has_every_form_in_words_of_its_own(built: Any) -> None:
    for atom in facts_of(built.atoms):
        subject, place = atom.fact.split("@")
        forms = by_form(atom)
        assert set(forms) == set(FORMS)
        think = [form.answer for form in forms["declarative"] if form.wording == "think"]
        other = [form.answer for form in forms["declarative"] if form.wording == "other"]
        assert think == [atom.fact]
        assert other == [f"{subject} at {place}"]
        assert [(form.prompt, form.answer) for form in forms["cloze"]] == [(f"blank {subject} at", place)]
        assert [form.answer for form in forms["paraphrase"]] == [f"at {place} is {subject}"]
        assert (f"ask {subject}", atom.fact) in [(form.prompt, form.answer) for form in forms["qa"]]
        assert all(form.fact == atom.fact for form in atom.recall if form.label is not False)


def test_claims_are_labelled_by_the_rules(built: Any, rules: Rules) -> None:
    true = set(rules.facts())
    labels = []
    for atom in facts_of(built.atoms):
        for form in by_form(atom)["claimform"]:
            words = form.prompt.removeprefix("claim ").replace(" at ", "@")
            assert form.label is (words in true), form.prompt
            assert form.answer == ("true" if form.label else "false")
            assert (form.fact is not None) is form.label
            labels.append(form.label)
    assert labels.count(False) >= 4 * labels.count(True) / 2
    assert labels.count(True) == 18


def test_derived_claims_are_labelled_by_the_rules(built: Any, rules: Rules) -> None:
    checked = 0
    for atom in built.atoms:
        if atom.family != "stroke":
            continue
        for form in by_form(atom)["claimform"]:
            call, _, effect = form.prompt.removeprefix("claim ").partition(" is ")
            pot, station = (word.partition(":")[2] for word in call.split())
            region, *colour = effect.split()
            truth = rules.fact(region) == f"{region}@{station}" and all(rules.fact(c) == f"{c}@{pot}" for c in colour)
            assert form.label is truth, form.prompt
            checked += 1
    assert checked > 60


def test_only_refuted_mutants_become_false_claims(game: DipWheel, built: Any) -> None:
    atom = next(atom for atom in built.atoms if atom.fact == "left@N")
    lexicon = DipwheelLexicon(game)
    region = next(family for family in lexicon.families() if family.name == "region")
    verdict = atom.verdict
    mutants = [
        mutant.model_copy(update={"verdict": verdict.model_copy(update={"status": status})})
        for mutant, status in zip(
            region.mutants(atom), ("refuted", "vacuous", "verified", "unstable", "weak"), strict=True
        )
    ]
    forms = Recaller(lexicon, game.words(), lambda _: mutants, [], []).forms(atom)
    false = [form.prompt for form in forms if form.label is False]
    assert false == ["claim right@N", "claim right at N"]


def test_held_out_marks_cover_atoms_forms_and_mentions(built: Any) -> None:
    for atom in built.atoms:
        for form in atom.recall:
            words = f"{form.prompt} {form.answer}".replace("@", " ").split()
            if atom.held_out.held or form.form == "paraphrase" or "wipe" in words:
                assert form.held_out, (atom.id, form)
            else:
                assert not form.held_out, (atom.id, form)


def test_no_trainable_form_tells_a_held_out_fact(built: Any) -> None:
    for atom in built.atoms:
        for form in atom.recall:
            if not form.held_out:
                text = f"{form.prompt} {form.answer}"
                assert "wipe" not in text.replace("@", " ").split()
                assert form.fact != "wipe@S"


def test_words_outside_the_vocabulary_make_a_form_inexpressible(game: DipWheel, built: Any) -> None:
    atom = next(atom for atom in built.atoms if atom.fact == "left@N")
    words = [word for word in game.words() if word != "at"]
    forms = Recaller(DipwheelLexicon(game), words, lambda _: [], [], []).forms(atom)
    assert {form.expressible for form in forms if " at " in f" {form.prompt} {form.answer} "} == {False}
    assert all(form.expressible for form in forms if form.answer == "left@N")


def test_recall_rows_name_their_atom(built: Any) -> None:
    rows = list(recall_rows(built.atoms))
    assert len(rows) == sum(len(atom.recall) for atom in built.atoms)
    row = next(row for row in rows if row["fact"] == "red@b" and row["form"] == "cloze")
    assert row == {
        "atom": "dipwheel/paint/red.b",
        "kind": "object_role",
        "family": "paint",
        "form": "cloze",
        "wording": "other",
        "prompt": "blank red at",
        "answer": "b",
        "label": None,
        "fact": "red@b",
        "held_out": False,
        "expressible": True,
    }
