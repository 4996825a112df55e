"""Families of claims about Dipwheel.

Invariant: every family says all that its words can say, true and false alike; what is true is for the trials
to find. The meaning of a region word (which cells it covers) is vocabulary; which station dips into it is
not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from internalize.games.dipwheel.rules import COLOURS, REGIONS
from internalize.games.dipwheel.state import HALVES, REGION_CELLS
from internalize.knowledge.atoms import Kind
from internalize.knowledge.dsl import Experiment, OneOf, Step
from internalize.knowledge.exploration import at_start
from internalize.knowledge.families import Draft, Family, Terms
from internalize.knowledge.ops import (
    Changed,
    Condition,
    Count,
    Differ,
    Distinct,
    Eq,
    Expect,
    Ne,
    Not,
    Null,
    Otherwise,
    Paints,
    Same,
    Turns,
    Unchanged,
)

GAME = "dipwheel"
BLANK = "blank"
CANVAS, TARGET = "canvas", "target"
CLEAR = [BLANK] * 4

#: The word that stands in the colour slot of a dip that takes no paint.
DRY = "dry"

_SHAPE = {"wipe": "blanks the canvas", "trap": "ends the episode"}


def dip(station: str) -> str:
    """Call word of a dip."""
    return f"dip:{station}"


def choose(pot: str) -> str:
    """Call word of a pot change."""
    return f"pot:{pot}"


def painted(canvas: Sequence[str], region: str, colour: str) -> list[str]:
    """The cells after `region` took `colour`, by the meaning of the words."""
    return [colour if index in REGION_CELLS[region] else cell for index, cell in enumerate(canvas)]


def outcome(region: str, colour: str | None) -> tuple[list[Condition], list[Expect], list[Null]]:
    """Precondition, expectation and null hypothesis of "this dip does to the canvas what `region` says"."""
    if region == "trap":
        return [], [Eq(probe="dead", value=True)], [Unchanged(probe="dead")]
    if region == "wipe":
        full: list[Condition] = [Ne(probe=CANVAS, value=list(CLEAR))]
        return full, [Eq(probe=CANVAS, value=list(CLEAR))], [Unchanged(probe=CANVAS)]
    paints = Paints(probe=CANVAS, cells=list(REGION_CELLS[region]), value=colour, besides=[BLANK])
    return [], [paints], [Unchanged(probe=CANVAS)]


class DipwheelFamilies:
    """The families over the stations, pots and levels of one game."""

    def __init__(self, stations: Sequence[str], pots: Sequence[str], levels: Sequence[int]) -> None:
        self.stations, self.pots, self.levels = tuple(stations), tuple(pots), tuple(levels)
        self.region = self._family("region", {"region": REGIONS, "station": self.stations}, ["region"], self._region)
        self.paint = self._family("paint", {"colour": COLOURS, "pot": self.pots}, ["colour"], self._paint)
        stroke = {"station": self.stations, "pot": self.pots, "region": REGIONS, "colour": (*COLOURS, DRY)}
        self.stroke = self._family("stroke", stroke, ["region", "colour"], self._stroke)
        plan = {"region": HALVES, "colour": COLOURS, "pot": self.pots, "station": self.stations}
        self.plan = self._family("plan", plan, ["pot", "station"], self._plan)
        layers = {
            "pot1": self.pots,
            "station1": self.stations,
            "pot2": self.pots,
            "station2": self.stations,
            "region1": HALVES,
            "colour1": COLOURS,
            "region2": HALVES,
            "colour2": COLOURS,
        }
        self.layers = self._family("layers", layers, ["region1", "colour1", "region2", "colour2"], self._layers)
        undo = {"pot": self.pots, "station": self.stations, "last": self.stations, "leaves": (BLANK, "paint")}
        self.undo = self._family("undo", undo, ["leaves"], self._undo)

    def whole(self) -> list[Family]:
        """Families whose every filling is a candidate."""
        levels = self.levels
        opening = {"level": levels[:2], "colour": COLOURS, "pot": self.pots}
        return [
            self.region,
            self.paint,
            self.stroke,
            self.plan,
            self._family("opening", opening, ["pot"], self._opening),
            self._family("budget", {"level": levels, "acts": range(3, 15)}, ["acts"], self._budget),
            self._family("painted", {"level": levels, "cells": range(1, 5)}, ["cells"], self._painted),
            self._family("hues", {"level": levels, "colours": range(1, 4)}, ["colours"], self._hues),
            self._family("goal", {"level": levels, "cleared": (True, False)}, ["cleared"], self._goal),
            self._family("cell", {"cell": range(4), "cleared": (True, False)}, ["cleared"], self._cell),
            self._family("full", {"cells": range(1, 5), "cleared": (True, False)}, ["cleared"], self._full),
        ]

    def derived(self) -> list[Family]:
        """Families that are filled from verified atoms."""
        return [self.layers, self.undo]

    def _family(
        self,
        name: str,
        slots: Mapping[str, Sequence[object]],
        consequent: list[str],
        draft: Callable[[Terms], Draft],
    ) -> Family:
        return Family(name, GAME, slots, consequent, draft, _fits)

    def _region(self, terms: Terms) -> Draft:
        region, station = terms["region"], terms["station"]
        pre, expect, null = outcome(region, None)
        claim = f"A dip at {station} {_SHAPE.get(region, f'paints the {region} half')}."
        kind: Kind = "hazard" if region == "trap" else "action_effect"
        test = Experiment(pre=pre, do=[dip(station)], expect=expect, null=null)
        return Draft(claim, kind, self.levels, test, [region], f"{region}@{station}")

    def _paint(self, terms: Terms) -> Draft:
        colour, pot = terms["colour"], terms["pot"]
        anywhere: list[Step] = [OneOf(one_of=[dip(station) for station in self.stations])]
        test = Experiment(
            pre=[Eq(probe="pot", value=pot)],
            do=anywhere,
            given=[Changed(probe=CANVAS), Not(of=Turns(probe=CANVAS, value=BLANK))],
            expect=[Turns(probe=CANVAS, value=colour)],
            null=[Otherwise()],
        )
        claim = f"Whatever a dip paints with pot {pot} turns {colour}."
        return Draft(claim, "object_role", self.levels, test, [colour], f"{colour}@{pot}")

    def _stroke(self, terms: Terms) -> Draft:
        station, pot, region, colour = terms["station"], terms["pot"], terms["region"], terms["colour"]
        pre, expect, null = outcome(region, colour)
        test = Experiment(pre=[Eq(probe="pot", value=pot), *pre], do=[dip(station)], expect=expect, null=null)
        effect = _SHAPE.get(region, f"paints the {region} half {colour}")
        subjects = [region] if colour == DRY else [region, colour]
        kind: Kind = "hazard" if region == "trap" else "action_effect"
        return Draft(f"With pot {pot} a dip at {station} {effect}.", kind, self.levels, test, subjects)

    def _plan(self, terms: Terms) -> Draft:
        region, colour, pot, station = terms["region"], terms["colour"], terms["pot"], terms["station"]
        test = Experiment(
            start=[Eq(probe=TARGET, value=painted(CLEAR, region, colour))],
            random_actions=(0, 0),
            pre=[Eq(probe="acts", value=0)],
            max_walk=0,
            do=[choose(pot), dip(station)],
            expect=[Eq(probe="cleared", value=True)],
            null=[Unchanged(probe="cleared")],
        )
        claim = f"To make the {region} half {colour} on a blank canvas: pot {pot}, then a dip at {station}."
        return Draft(claim, "strategy", [2], test, [region, colour])

    def _layers(self, terms: Terms) -> Draft:
        first = painted(CLEAR, terms["region1"], terms["colour1"])
        final = painted(first, terms["region2"], terms["colour2"])
        acts = [choose(terms["pot1"]), dip(terms["station1"]), choose(terms["pot2"]), dip(terms["station2"])]
        test = Experiment(
            random_actions=(0, 1),
            pre=[Eq(probe=CANVAS, value=list(CLEAR))],
            max_walk=1,
            do=list(acts),
            expect=[Eq(probe=CANVAS, value=final)],
            null=[Unchanged(probe=CANVAS)],
        )
        claim = f"On a blank canvas {', '.join(acts)} leaves {' '.join(final)}."
        subjects = [terms[name] for name in ("region1", "colour1", "region2", "colour2")]
        return Draft(claim, "strategy", [level for level in self.levels if level in (3, 4, 5)], test, subjects)

    def _undo(self, terms: Terms) -> Draft:
        gone = terms["leaves"] == BLANK
        blank = Eq(probe=CANVAS, value=list(CLEAR))
        test = Experiment(
            random_actions=(0, 1),
            max_walk=1,
            setup=[choose(terms["pot"]), dip(terms["station"])],
            do=[dip(terms["last"])],
            expect=[blank if gone else Not(of=blank)],
            null=[Unchanged(probe=CANVAS)] if gone else [blank],
        )
        effect = "blanks it" if gone else "leaves paint on it"
        claim = f"After pot {terms['pot']} and a dip at {terms['station']}, a dip at {terms['last']} {effect}."
        return Draft(claim, "action_effect", self.levels, test, ["wipe"])

    def _opening(self, terms: Terms) -> Draft:
        level, colour, pot = terms["level"], terms["colour"], terms["pot"]
        start: list[Condition] = [Count(probe=TARGET, besides=[BLANK, *(c for c in COLOURS if c != colour)], value=2)]
        test = at_start([Eq(probe="pot", value=pot)], [Otherwise()], start)
        return Draft(
            f"Level {level} with a {colour} target starts with pot {pot}.",
            "initial_state",
            [level],
            test,
            [colour],
        )

    def _budget(self, terms: Terms) -> Draft:
        test = at_start([Eq(probe="actions_left", value=terms["acts"])], [Otherwise()])
        return Draft(f"Level {terms['level']} gives {terms['acts']} acts.", "budget", [terms["level"]], test)

    def _painted(self, terms: Terms) -> Draft:
        level, cells = terms["level"], terms["cells"]
        test = at_start([Count(probe=TARGET, besides=[BLANK], value=cells)], [Otherwise()], effort=6)
        return Draft(f"The target of level {level} has {_so_many(cells, 'painted cell')}.", "level_fact", [level], test)

    def _hues(self, terms: Terms) -> Draft:
        level, colours = terms["level"], terms["colours"]
        test = at_start([Distinct(probe=TARGET, besides=[BLANK], value=colours)], [Otherwise()], effort=6)
        return Draft(f"The target of level {level} has {_so_many(colours, 'colour')}.", "level_fact", [level], test)

    def _goal(self, terms: Terms) -> Draft:
        return self._ending(
            [Same(probe=CANVAS, other=TARGET)],
            terms["cleared"],
            f"In level {terms['level']} a canvas equal to the target",
            "goal",
            [terms["level"]],
        )

    def _cell(self, terms: Terms) -> Draft:
        where = ("top left", "top right", "bottom left", "bottom right")[terms["cell"]]
        return self._ending(
            [Differ(probe=CANVAS, other=TARGET, cells=[terms["cell"]])],
            terms["cleared"],
            f"A canvas that differs from the target in the {where} cell alone",
            "goal_exclusion",
            self.levels,
        )

    def _full(self, terms: Terms) -> Draft:
        pre: list[Condition] = [Count(probe=CANVAS, besides=[BLANK], value=terms["cells"])]
        claim = f"A canvas with {_so_many(terms['cells'], 'painted cell')}, whatever the target,"
        return self._ending(pre, terms["cleared"], claim, "goal", self.levels)

    def _ending(self, pre: list[Condition], cleared: bool, what: str, kind: Kind, levels: Sequence[int]) -> Draft:
        test = Experiment(
            random_actions=(0, 1),
            pre=pre,
            max_walk=8,
            expect=[Eq(probe="cleared", value=cleared)],
            null=[Eq(probe="cleared", value=not cleared)],
            # Endings are rare: a claim about all levels gets more trials, so that each level has its share.
            effort=min(len(levels), 3),
        )
        return Draft(f"{what} {'clears' if cleared else 'does not clear'} the level.", kind, levels, test)


def _so_many(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _fits(terms: Terms) -> bool:
    """Whether a filling makes sense: wipe and trap, and they alone, are dry; two layers are two regions."""
    if "region" in terms and "colour" in terms:
        return bool((terms["region"] not in HALVES) == (terms["colour"] == DRY))
    return "region1" not in terms or bool(terms["region1"] != terms["region2"])
