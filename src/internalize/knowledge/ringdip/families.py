"""Families of claims about ring-and-dip games: moves, paints, dips, the small tool, targets.

Invariant: the shape of a region (which cells it covers) is vocabulary; which stroke paints it is not. Level 0 in a
claim's terms stands for every level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from internalize.games.arc.ringdip import ARROWS, DIP, Layout
from internalize.knowledge.atoms import Kind
from internalize.knowledge.dsl import Experiment
from internalize.knowledge.exploration import at_start
from internalize.knowledge.families import Draft, Family, Terms
from internalize.knowledge.ops import Changed, Condition, Count, Eq, Expect, Ne, Null, Otherwise, Paints, Unchanged
from internalize.knowledge.ringdip.phrases import sentence

GAME = "ringdip"
EVERY = 0
"""The level of a claim about all of them."""
CANVAS, TARGET, PAINT, PLACE, STATION, SMALL = "canvas", "target", "paint", "place", "station", "small"

WALK = 10
"""Acts from a context into a precondition: half the ring, a paint, and some to spare."""


class RingDipFamilies:
    """The families over the stations, regions, paints and levels of one game.

    Args:
        layout: names of stations and regions, and the cells of regions.
        levels: the game's levels.
        paints: colours of the swatches of any level.
        blank: colour of an untouched canvas.
    """

    def __init__(self, layout: Layout, levels: Sequence[int], paints: Sequence[int], blank: int) -> None:
        self.layout, self.levels, self.blank = layout, tuple(levels), blank
        stations = tuple(layout.stations)
        self._place = {name: number for number, name in enumerate(stations)}
        some = (EVERY, *levels)
        clicks, taps = tuple(layout.clicks), tuple(layout.taps)
        dips = tuple(dict.fromkeys(layout.regions))
        whole = tuple(name for name in dips if not name.endswith("-block"))
        small = tuple(name for name in dips if name.endswith("-block"))
        move = {"level": some, "station": stations, "arrow": tuple(ARROWS), "to": stations}
        self.move = self._family("move", move, "to", self._move, lambda t: bool(t["to"] != t["station"]))
        stay = {"level": some, "station": stations, "arrow": tuple(ARROWS), "effect": ("stays", "moves")}
        self.stay = self._family("stay", stay, "effect", self._stay)
        load = {"level": levels, "click": clicks, "paint": tuple(paints)}
        self.load = self._family("load", load, "paint", self._load)
        self.load_at = self._family("load_at", {"station": stations, **load}, "paint", self._load)
        self.dip = self._family("dip", {"region": whole, "station": stations}, "region", self._dip)
        stroke = {"level": some, "station": stations, "click": clicks, "paint": tuple(paints), "region": whole}
        self.stroke = self._family("stroke", stroke, "region", self._stroke)
        tap = {"level": levels, "station": taps, "region": small}
        self.tap = self._family("tap", tap, "region", self._tap)
        dab = {"level": levels, "station": taps, "click": clicks, "paint": tuple(paints), "region": small}
        self.dab = self._family("dab", dab, "region", self._tap)
        miss = {"level": levels, "station": stations, "tap": taps, "effect": ("unchanged", "changed")}
        self.miss = self._family("miss", miss, "effect", self._miss)
        size = len(next(iter(layout.regions.values()))) * 2
        cells = {"level": levels, "paint": tuple(paints), "cells": range(size * 2)}
        self.cells = self._family("cells", cells, "cells", self._cells)

    def all(self) -> list[Family]:
        """Every family."""
        made = [self.move, self.stay, self.load, self.load_at, self.dip, self.stroke]
        return [*made, self.tap, self.dab, self.miss, self.cells]

    def _family(
        self,
        name: str,
        slots: Mapping[str, Sequence[object]],
        consequent: str,
        draft: Callable[[Terms], Draft],
        fits: Callable[[Terms], bool] = lambda terms: True,
    ) -> Family:
        return Family(name, GAME, slots, [consequent], draft, fits)

    def _scope(self, terms: Terms) -> list[int]:
        return list(self.levels) if terms["level"] == EVERY else [terms["level"]]

    def _at(self, terms: Terms) -> list[Condition]:
        return [Eq(probe=PLACE, value=self._place[terms["station"]])] if "station" in terms else []

    def _draft(self, family: str, kind: Kind, terms: Terms, levels: Sequence[int], test: Experiment) -> Draft:
        return Draft(sentence(family, terms), kind, levels, test)

    def _move(self, terms: Terms) -> Draft:
        test = Experiment(
            pre=self._at(terms),
            max_walk=WALK,
            do=[terms["arrow"]],
            expect=[Eq(probe=STATION, value=terms["to"])],
            null=[Unchanged(probe=STATION)],
        )
        return self._draft("move", "action_effect", terms, self._scope(terms), test)

    def _stay(self, terms: Terms) -> Draft:
        stays = terms["effect"] == "stays"
        test = Experiment(
            pre=self._at(terms),
            max_walk=WALK,
            do=[terms["arrow"]],
            expect=[Unchanged(probe=STATION) if stays else Changed(probe=STATION)],
            null=[Otherwise()],
        )
        return self._draft("stay", "no_effect" if stays else "action_effect", terms, self._scope(terms), test)

    def _load(self, terms: Terms) -> Draft:
        test = Experiment(
            pre=[*self._at(terms), Ne(probe=PAINT, value=terms["paint"])],
            max_walk=WALK,
            do=[f"click:{terms['click']}"],
            expect=[Eq(probe=PAINT, value=terms["paint"])],
            null=[Unchanged(probe=PAINT)],
        )
        family = "load_at" if "station" in terms else "load"
        return self._draft(family, "object_role", terms, self._scope(terms), test)

    def _dip(self, terms: Terms) -> Draft:
        region = terms["region"]
        test = Experiment(
            pre=[*self._at(terms), Ne(probe=PAINT, value=self.blank)],
            max_walk=WALK,
            do=[DIP],
            expect=[self._paints(region, None)],
            null=[Unchanged(probe=CANVAS)],
        )
        fact = f"{region}@{terms['station']}"
        return Draft(sentence("dip", terms), "action_effect", list(self.levels), test, [region], fact)

    def _stroke(self, terms: Terms) -> Draft:
        expect, null = [self._paints(terms["region"], terms["paint"])], [Unchanged(probe=CANVAS)]
        test = self._painting(terms, DIP, expect, null)
        return Draft(sentence("stroke", terms), "action_effect", self._scope(terms), test, [terms["region"]])

    def _tap(self, terms: Terms) -> Draft:
        expect: list[Expect] = [self._paints(terms["region"], terms.get("paint"))]
        null: list[Null] = [Unchanged(probe=CANVAS)]
        word = f"tap:{terms['station']}"
        test = self._painting(terms, word, expect, null)
        family = "dab" if "paint" in terms else "tap"
        return self._draft(family, "action_effect", terms, self._scope(terms), test)

    def _painting(self, terms: Terms, word: str, expect: Sequence[Expect], null: Sequence[Null]) -> Experiment:
        """A stroke with a paint, or with any; a blank one is put over another, since on a blank canvas it shows not."""
        if terms.get("paint") == self.blank:
            pre: list[Condition] = [*self._at(terms), Ne(probe=PAINT, value=self.blank)]
            setup = [word, f"click:{terms['click']}"]
        else:
            paint = Eq(probe=PAINT, value=terms["paint"]) if "paint" in terms else Ne(probe=PAINT, value=self.blank)
            pre, setup = [*self._at(terms), paint], []
        return Experiment(pre=pre, max_walk=WALK, setup=setup, do=[word], expect=list(expect), null=list(null))

    def _paints(self, region: str, paint: int | None) -> Paints:
        blank = [self.blank] if paint is None else []
        return Paints(probe=CANVAS, cells=sorted(self.layout.regions[region]), value=paint, besides=list(blank))

    def _miss(self, terms: Terms) -> Draft:
        nothing = terms["effect"] == "unchanged"
        test = Experiment(
            pre=self._at(terms),
            max_walk=WALK,
            do=[f"tap:{terms['tap']}"],
            expect=[Unchanged(probe=CANVAS) if nothing else Changed(probe=CANVAS)],
            null=[Otherwise()],
        )
        return self._draft("miss", "no_effect" if nothing else "action_effect", terms, self._scope(terms), test)

    def _cells(self, terms: Terms) -> Draft:
        others = [colour for colour in range(16) if colour != terms["paint"]]
        count = Count(probe=TARGET, besides=list(others), value=terms["cells"])
        return self._draft("cells", "level_fact", terms, self._scope(terms), at_start([count], [Otherwise()]))
