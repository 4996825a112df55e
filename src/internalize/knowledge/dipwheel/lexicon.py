"""The words of Dipwheel as a lexicon: stations and pots from its call words, forms from its vocabulary.

Invariant: `compose` and `notice` read verified atoms and watched steps, never the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from internalize.games.dipwheel.rules import COLOURS, REGIONS
from internalize.games.dipwheel.state import HALVES, REGION_CELLS
from internalize.games.protocol import Game
from internalize.knowledge.atoms import Atom, Provenance, Recall, Wording
from internalize.knowledge.bench import Bench
from internalize.knowledge.dipwheel.families import BLANK, CANVAS, CLEAR, DipwheelFamilies
from internalize.knowledge.dipwheel.forms import claims, forms
from internalize.knowledge.families import Family, Step, Terms

#: Dimension -> the call that names its words.
_CALLED = {"station": "dip", "pot": "pot"}


class DipwheelLexicon:
    """See `knowledge.families.Lexicon`."""

    def __init__(self, game: Game) -> None:
        words = game.call_words()
        stations = [word.removeprefix("dip:") for word in words if word.startswith("dip:")]
        pots = [word.removeprefix("pot:") for word in words if word.startswith("pot:")]
        self._families = DipwheelFamilies(stations, pots, game.levels)
        self.dimensions: dict[str, tuple[str, ...]] = {
            "station": tuple(stations),
            "pot": tuple(pots),
            "level": tuple(map(str, game.levels)),
            "region": REGIONS,
            "colour": COLOURS,
            "pair": tuple(f"{station}+{pot}" for station in stations for pot in pots),
        }

    def mentions(self, atom: Atom, dimension: str) -> set[str]:
        if dimension == "level":
            return {str(level) for level in atom.scope.levels}
        if dimension == "pair":
            both = {"station", "pot"} <= set(atom.terms)
            return {f"{atom.terms['station']}+{atom.terms['pot']}"} if both else set()
        named = {str(word) for slot, word in atom.terms.items() if slot.rstrip("12") == dimension}
        calls = {call.partition(":") for call in atom.test.calls()} if dimension in _CALLED and not named else set()
        return named | {place for call, _, place in calls if call == _CALLED[dimension]}

    def families(self) -> Sequence[Family]:
        return self._families.whole()

    def composites(self) -> Sequence[Family]:
        return self._families.derived()

    def subjects(self) -> Sequence[str]:
        return (*REGIONS, *COLOURS)

    def places(self) -> Sequence[Sequence[str]]:
        return self.dimensions["station"], self.dimensions["pot"]

    def sayings(self) -> Mapping[str, str]:
        pairs = zip((REGIONS, COLOURS), self.places(), strict=True)
        words = [f"{subject}@{place}" for subjects, places in pairs for subject in subjects for place in places]
        return dict(zip(words, words, strict=True))

    def notes(self, verified: Sequence[Atom]) -> Sequence[str]:
        return []

    def sweep(self, bench: Bench) -> Sequence[Step]:
        return []

    def notice(self, step: Step) -> Sequence[tuple[str, Terms]]:
        """What one dip suggests: a half in one new colour, a canvas gone blank, a closed trap."""
        kind, _, station = step.word.partition(":")
        if kind != "dip":
            return []
        before, after = step.before.probes, step.after.probes
        pot = before["pot"]
        if after["dead"]:
            return [("region", {"region": "trap", "station": station})]
        changed = [index for index in range(len(CLEAR)) if before[CANVAS][index] != after[CANVAS][index]]
        if changed and after[CANVAS] == CLEAR:
            return [("region", {"region": "wipe", "station": station})]
        found: list[tuple[str, Terms]] = []
        colours = {after[CANVAS][index] for index in changed} - {BLANK}
        for region in HALVES:
            if changed == list(REGION_CELLS[region]) and len(colours) == 1:
                colour = colours.pop()
                found.append(("region", {"region": region, "station": station}))
                found.append(("paint", {"colour": colour, "pot": pot}))
                found.append(("stroke", {"station": station, "pot": pot, "region": region, "colour": colour}))
        return found

    def compose(self, verified: Sequence[Atom]) -> Sequence[Atom]:
        """Two strokes one over the other, and a wipe after any stroke, from the facts that stand."""
        facts = [atom for atom in verified if atom.fact]
        halves = [atom for atom in facts if atom.family == "region" and atom.terms["region"] in HALVES]
        wipes = [atom for atom in facts if atom.family == "region" and atom.terms["region"] == "wipe"]
        paints = [atom for atom in facts if atom.family == "paint"]
        layers, undo = self.composites()
        atoms = []
        for first, second in permutations(halves, 2):
            for one, two in permutations(paints, 2):
                terms = {
                    "pot1": one.terms["pot"],
                    "station1": first.terms["station"],
                    "pot2": two.terms["pot"],
                    "station2": second.terms["station"],
                    "region1": first.terms["region"],
                    "colour1": one.terms["colour"],
                    "region2": second.terms["region"],
                    "colour2": two.terms["colour"],
                }
                atoms.append(layers.atom(terms, Provenance.of("composition", parents=[first, second, one, two])))
        for wipe in wipes:
            for half in halves:
                for paint in paints:
                    terms = {
                        "pot": paint.terms["pot"],
                        "station": half.terms["station"],
                        "last": wipe.terms["station"],
                        "leaves": BLANK,
                    }
                    atoms.append(undo.atom(terms, Provenance.of("composition", parents=[wipe, half, paint])))
        return atoms

    def forms(self, atom: Atom) -> Sequence[Recall]:
        return forms(atom)

    def claims(self, atom: Atom) -> Sequence[tuple[Wording, str]]:
        return claims(atom)
