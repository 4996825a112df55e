"""The hidden rules of Dipwheel: which region each station dips into, which colour each pot holds.

Invariant: `regions` is a permutation of `REGIONS` and `paints` one of `COLOURS` (720 x 6 = 4320 rule sets),
and `facts()` states them completely, one word a fact, in a fixed order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from internalize.errors import UserError

STATIONS = ("N", "NE", "SE", "S", "SW", "NW")
REGIONS = ("left", "right", "top", "bottom", "wipe", "trap")
COLOURS = ("red", "green", "blue")
POTS = ("a", "b", "c")


@dataclass(frozen=True)
class Rules:
    """`regions[i]` is the region of `STATIONS[i]`, `paints[i]` the colour in `POTS[i]`."""

    regions: tuple[str, ...]
    paints: tuple[str, ...]

    def __post_init__(self) -> None:
        _check("rules.stations", self.regions, REGIONS)
        _check("rules.pots", self.paints, COLOURS)

    @classmethod
    def of(cls, stations: Mapping[str, str], pots: Mapping[str, str]) -> Rules:
        """Rules as the study file writes them, `{N: left, ..}` and `{a: blue, ..}`; UserError for anything
        else."""
        return cls(_ordered("rules.stations", stations, STATIONS), _ordered("rules.pots", pots, POTS))

    @cached_property
    def place(self) -> dict[str, str]:
        """Station of each region and pot of each colour: the inverse reading, by which a player looks up."""
        return {**dict(zip(self.regions, STATIONS, strict=True)), **dict(zip(self.paints, POTS, strict=True))}

    def fact(self, subject: str) -> str:
        """Fact token about a region or a colour: `left@N`, `red@b`."""
        return f"{subject}@{self.place[subject]}"

    def facts(self) -> tuple[str, ...]:
        """All nine fact tokens, stations first."""
        return tuple(map(self.fact, (*self.regions, *self.paints)))


def random_rules(rng: random.Random, exclude_regions: Sequence[str] | None = None) -> Rules:
    """Uniformly random rules, without those whose stations read `exclude_regions`."""
    while True:
        regions, paints = list(REGIONS), list(COLOURS)
        rng.shuffle(regions)
        rng.shuffle(paints)
        if exclude_regions is None or regions != list(exclude_regions):
            return Rules(tuple(regions), tuple(paints))


def fact_words() -> tuple[str, ...]:
    """Every fact token that some rule set could state: 36 of stations, 9 of pots."""
    stations = [f"{region}@{station}" for region in REGIONS for station in STATIONS]
    pots = [f"{colour}@{pot}" for colour in COLOURS for pot in POTS]
    return (*stations, *pots)


def _ordered(where: str, given: Any, places: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(given, Mapping) or set(given) != set(places):
        got = " ".join(map(str, given)) if isinstance(given, Mapping) else repr(given)
        raise UserError("every place needs one entry", where=where, expected=" ".join(places), got=got)
    return tuple(given[place] for place in places)


def _check(where: str, given: tuple[str, ...], names: tuple[str, ...]) -> None:
    if sorted(map(str, given)) != sorted(names):
        raise UserError(
            "each name must be used exactly once",
            where=where,
            expected=" ".join(names),
            got=" ".join(map(str, given)),
        )
