"""Which claims about a ring-and-dip game are worth a trial: those that a sweep of its situations suggests, and what
follows from them.

Invariant: `notice` and `compose` read watched steps and verified atoms, never the layout's `strokes` or a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from internalize.games.arc.game import ArcGame
from internalize.games.arc.ringdip import ARROWS, DIP, RingDip
from internalize.games.protocol import Game
from internalize.knowledge.atoms import Atom, Provenance, Recall, Wording
from internalize.knowledge.bench import Bench
from internalize.knowledge.families import Family, Step, Terms
from internalize.knowledge.ringdip.families import CANVAS, EVERY, PAINT, SMALL, STATION, TARGET, RingDipFamilies
from internalize.knowledge.ringdip.phrases import claims, forms, sentence


class RingDipLexicon:
    """See `knowledge.families.Lexicon`."""

    def __init__(self, game: Game) -> None:
        if not isinstance(game, ArcGame) or not isinstance(game.board, RingDip):
            raise TypeError(f"no ring-and-dip game: {game.name}")
        layout = game.board.layout
        self._starts = {level: game.probes(game.start(level, 0)) for level in game.levels}
        paints = sorted({paint for probes in self._starts.values() for paint in probes["swatches"]})
        blank = self._starts[game.levels[0]][CANVAS][0]
        self._levels, self._regions = game.levels, layout.regions
        self._families = RingDipFamilies(layout, game.levels, paints, blank)
        self._strokes = {name: sorted(cells) for name, cells in layout.regions.items()}
        self.dimensions: dict[str, tuple[str, ...]] = {
            "station": tuple(layout.stations),
            "arrow": tuple(ARROWS),
            "region": tuple(layout.regions),
            "paint": tuple(map(str, paints)),
            "level": tuple(map(str, game.levels)),
        }

    def mentions(self, atom: Atom, dimension: str) -> set[str]:
        if dimension == "level":
            return {str(level) for level in atom.scope.levels}
        value = atom.terms.get(dimension)
        return set() if value is None else {str(value)}

    def families(self) -> Sequence[Family]:
        """None is tried in every filling: nearly all would be false."""
        return []

    def composites(self) -> Sequence[Family]:
        return self._families.all()

    def subjects(self) -> Sequence[str]:
        return [name for name in self._regions if not name.endswith("-block")]

    def places(self) -> Sequence[Sequence[str]]:
        return (self.dimensions["station"],)

    def sayings(self) -> Mapping[str, str]:
        pairs = product(self.subjects(), self.dimensions["station"])
        return {f"{region}@{at}": sentence("dip", {"region": region, "station": at}) for region, at in pairs}

    def notes(self, verified: Sequence[Atom]) -> Sequence[str]:
        """What a player must know besides the dips; what is composed of it is left out."""
        return [atom.claim for atom in verified if not atom.fact and not atom.provenance.parents]

    def sweep(self, bench: Bench) -> Sequence[Step]:
        """Every call once in every situation (level and station), from the shortest way to it.

        Clicks also after clicks, because a click on the loaded paint shows nothing.
        """
        return list(self._swept(bench))

    def _swept(self, bench: Bench) -> Iterator[Step]:
        for level in self._levels:
            spots = [bench.start(level, 0)]
            known = {spots[0].probes[STATION]}
            for spot in spots:
                for word in bench.words:
                    after = bench.step(spot, word)
                    if after is None:
                        continue
                    yield Step(spot, word, after, f"sweep of level {level} at {spot.probes[STATION]}")
                    if spot is spots[0] and after.probes[PAINT] != spot.probes[PAINT]:
                        for back in bench.words:
                            again = bench.step(after, back) if back.startswith("click:") else None
                            if again is not None:
                                yield Step(after, back, again, f"sweep of level {level}, a click after a click")
                    if not after.state.done and after.probes[STATION] not in known:
                        known.add(after.probes[STATION])
                        spots.append(after)

    def notice(self, step: Step) -> Sequence[tuple[str, Terms]]:
        """What one step suggests: where an arrow leads, what a click loads, which region a stroke covers."""
        before, after, level = step.before.probes, step.after.probes, step.before.level
        call, _, value = step.word.partition(":")
        here = {"station": before[STATION]}
        if call in ARROWS:
            if after[STATION] != before[STATION]:
                return [("move", {"level": EVERY, **here, "arrow": call, "to": after[STATION]})]
            return [("stay", {"level": EVERY, **here, "arrow": call, "effect": "stays"})]
        if call == "click" and value.isdigit() and after[PAINT] != before[PAINT]:
            return [("load", {"level": level, "click": int(value), "paint": after[PAINT]})]
        if call == DIP:
            return [("dip", {"region": region, **here}) for region in self._fits(step) if not region.endswith("-block")]
        if call == "tap":
            if before[SMALL] and value == before[STATION]:
                regions = [region for region in self._fits(step) if region.endswith("-block")]
                return [("tap", {"level": level, **here, "region": region}) for region in regions]
            if after[CANVAS] == before[CANVAS]:
                return [("miss", {"level": level, **here, "tap": value, "effect": "unchanged"})]
        return []

    def _fits(self, step: Step) -> list[str]:
        """The regions whose cells are exactly those that a step has changed."""
        old, new = step.before.probes[CANVAS], step.after.probes[CANVAS]
        changed = [index for index, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        return [name for name, cells in self._strokes.items() if cells == changed]

    def compose(self, verified: Sequence[Atom]) -> Sequence[Atom]:
        """The same moves level by level, clicks station by station, strokes with each paint; targets' colours."""
        made = self._families
        by: dict[str, list[Atom]] = {family.name: [] for family in made.all()}
        for atom in verified:
            by.get(atom.family, []).append(atom)
        atoms = []
        for atom, level in product([*by["move"], *by["stay"]], self._levels):
            family = made.move if atom.family == "move" else made.stay
            atoms.append(family.atom({**atom.terms, "level": level}, _from(atom)))
        for atom, station in product(by["load"], self.dimensions["station"]):
            atoms.append(made.load_at.atom({"station": station, **atom.terms}, _from(atom)))
        for dip, load in product(by["dip"], by["load"]):
            atoms.append(made.stroke.atom({**load.terms, **dip.terms}, _from(dip, load)))
        for tap, load in product(by["tap"], by["load"]):
            if tap.terms["level"] == load.terms["level"]:
                atoms.append(made.dab.atom({**load.terms, **tap.terms}, _from(tap, load)))
        for level, probes in self._starts.items():
            for paint in probes["swatches"]:
                terms = {"level": level, "paint": paint, "cells": probes[TARGET].count(paint)}
                atoms.append(made.cells.atom(terms, Provenance.of("exploration", f"start of level {level}")))
        return atoms

    def forms(self, atom: Atom) -> Sequence[Recall]:
        return forms(atom)

    def claims(self, atom: Atom) -> Sequence[tuple[Wording, str]]:
        return claims(atom)


def _from(*parents: Atom) -> Provenance:
    return Provenance.of("composition", parents=parents)
