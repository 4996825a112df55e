from __future__ import annotations

from typing import Any

from internalize.games.dipwheel import DipWheel, Rules
from internalize.games.dipwheel.state import REGION_CELLS
from internalize.knowledge.atoms import Provenance
from internalize.knowledge.bench import Bench
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.knowledge.exploration import explore
from internalize.knowledge.families import MAX_MUTANTS, when


def test_products_are_unique_and_mutants_differ_in_one_consequent_slot(game: DipWheel) -> None:
    for family in DipwheelLexicon(game).families():
        atoms = list(family.product())
        assert len({atom.id for atom in atoms}) == len({atom.hash for atom in atoms}) == len(atoms) > 0, family.name
        for atom in atoms[:: max(1, len(atoms) // 20)]:
            mutants = family.mutants(atom)
            assert mutants, atom.id
            assert len(mutants) <= MAX_MUTANTS * len(family.consequent)
            for mutant in mutants:
                changed = {slot for slot in atom.terms if atom.terms[slot] != mutant.terms[slot]}
                assert len(changed) == 1
                assert changed <= set(family.consequent)
                assert mutant.provenance.parents == [atom.id]


def test_a_mutant_equal_to_its_atom_is_left_out(game: DipWheel) -> None:
    """Where `left` is painted twice, the first colour is gone: another first colour claims the same."""
    layers = DipwheelLexicon(game).composites()[0]
    terms = {
        "pot1": "a",
        "station1": "N",
        "pot2": "b",
        "station2": "N",
        "region1": "left",
        "colour1": "blue",
        "region2": "left",
        "colour2": "red",
    }
    atom = layers.atom(terms, Provenance.of("composition"))
    assert all(mutant.hash != atom.hash for mutant in layers.mutants(atom))
    assert all(mutant.terms["colour1"] == "blue" for mutant in layers.mutants(atom))


def test_stations_and_pots_come_from_the_call_words(game: DipWheel) -> None:
    dimensions = DipwheelLexicon(game).dimensions
    assert {f"dip:{word}" for word in dimensions["station"]} | {f"pot:{word}" for word in dimensions["pot"]} == set(
        game.call_words()
    )


def test_what_a_step_suggests_is_true_of_that_step(game: DipWheel, rules: Rules) -> None:
    """One dip can be read wrongly (half of it may have had the colour already), but not on a blank canvas."""
    lexicon = DipwheelLexicon(game)
    suggested = []
    for step in explore(Bench(game), 120, 5):
        for family, terms in lexicon.notice(step):
            suggested.append(family)
            if family == "region" and step.before.probes["canvas"] == ["blank"] * 4:
                assert rules.fact(terms["region"]) == f"{terms['region']}@{terms['station']}"
            if family == "paint":
                assert rules.fact(terms["colour"]) == f"{terms['colour']}@{terms['pot']}"
    assert set(suggested) == {"region", "paint", "stroke"}


def test_composed_layers_end_as_the_rules_paint_them(built: Any, game: DipWheel, rules: Rules) -> None:
    layers = [atom for atom in built.atoms if atom.family == "layers"]
    assert len(layers) == 72
    for atom in layers:
        canvas = ["blank"] * 4
        pot = ""
        for call in atom.test.do:
            kind, _, place = call.partition(":")
            if kind == "pot":
                pot = place
                continue
            region = rules.regions[("N", "NE", "SE", "S", "SW", "NW").index(place)]
            colour = rules.paints["abc".index(pot)]
            canvas = [colour if index in REGION_CELLS[region] else cell for index, cell in enumerate(canvas)]
        assert atom.test.expect[0].value == canvas, atom.claim
        assert len(atom.provenance.parents) == 4


def test_uses_name_the_call_and_when(built: Any) -> None:
    stroke = next(atom for atom in built.atoms if atom.id == "dipwheel/stroke/N.b.left.red")
    assert [(use.action, use.when) for use in stroke.uses] == [("dip:N", "pot is b")]
    assert when([]) == "always"
