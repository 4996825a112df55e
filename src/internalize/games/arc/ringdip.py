"""Boards of ring-and-dip games: a canvas, a target beside it, a tool on a ring of stations, paints in a strip.

Invariant: probes are read off the frame at places that the layout names; `strokes` alone says what the game does, and
only `plan` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from internalize.games.arc.engine import SIZE
from internalize.games.arc.peel import Stroke, shortest
from internalize.games.protocol import Action, Advice, Game

Point = tuple[int, int]
ARROWS: Mapping[str, str] = {"up": "ACTION1", "down": "ACTION2", "left": "ACTION3", "right": "ACTION4"}
DIP, TAP = "dip", "tap:"


@dataclass(frozen=True)
class Box:
    """A rectangle of the frame: left, top, width, height."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Station:
    """Where the tool shows at a station: a cell of its outline, and one of its filling."""

    outline: Point
    filling: Point


@dataclass(frozen=True)
class Layout:
    """Where things are on the screen of one ring-and-dip game, and what its strokes do."""

    canvas: Box
    target: Box
    stations: Mapping[str, Station]
    """In the order of the ring."""
    outline: int
    """Colour of the tool's outline."""
    strip: int
    """Top row of the swatches; each is a square of `swatch` cells with a frame of colour `rim`."""
    swatch: int
    rim: int
    clicks: Sequence[int]
    """Columns, in the middle row of the strip, of the swatches of any level."""
    budget: int
    regions: Mapping[str, frozenset[int]]
    """Shapes of strokes by name: cells of the canvas, in reading order."""
    strokes: Mapping[str, str]
    """Station -> region of its dip."""
    taps: Mapping[str, Point] = field(default_factory=dict)
    """Station -> where the small tool shows there, if the level has one."""
    small: Mapping[str, str] = field(default_factory=dict)
    """Station -> region of the small tool's stroke."""
    small_from: int = 0
    """Swatches, at least, of the levels that have it."""
    free: frozenset[int] = frozenset()
    """Cells that the goal does not compare."""
    background: int = 5
    training_levels: tuple[int, ...] = (1, 2, 3, 4)
    hud_rows: frozenset[int] = frozenset({SIZE - 1})
    nowhere: Point = (1, SIZE // 2)
    """A cell with nothing on it."""


class RingDip:
    """The board of one layout; see `board.Board`."""

    name = "ringdip"

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.hud_rows = layout.hud_rows
        self.training_levels = layout.training_levels
        self._probes = lru_cache(maxsize=20_000)(self._read)

    def budget(self, level: int) -> int:
        return self.layout.budget

    def call_words(self) -> Mapping[str, Action]:
        """`up` .. `right`, `dip`, `click:X` for each swatch column, `tap:STATION`, `click:nowhere`."""
        return self._words

    @cached_property
    def _words(self) -> dict[str, Action]:
        layout = self.layout
        row = layout.strip + layout.swatch // 2
        return {
            **{word: Action(action) for word, action in ARROWS.items()},
            DIP: Action("ACTION5"),
            **{f"click:{x}": Action("ACTION6", x, row) for x in layout.clicks},
            **{f"tap:{station}": Action("ACTION6", *point) for station, point in layout.taps.items()},
            "click:nowhere": Action("ACTION6", *layout.nowhere),
        }

    def probes(self, frame: bytes) -> dict[str, Any]:
        """`station` and its number `place`, `paint`, `swatches`, `small` (the small tool is there), `canvas`, `target`.

        A paint is a colour number; `canvas` and `target` are their cells in reading order.
        """
        return dict(self._probes(frame))

    def progress(self, frame: bytes) -> float:
        """Share of the compared cells that agree."""
        layout = self.layout
        pairs = zip(cells(frame, layout.canvas), cells(frame, layout.target), strict=True)
        compared = [a == b for index, (a, b) in enumerate(pairs) if index not in layout.free]
        return sum(compared) / len(compared)

    def plan(self, frame: bytes) -> list[str]:
        return [word for word, _ in self._way(frame)]

    def misfits(self, game: Game) -> list[str]:
        """Walks the ring of every level and clicks every swatch: are stations, paints and canvas in their places?"""
        words, stations = game.call_words(), set(self.layout.stations)
        return [
            f"level {level}: {complaint}"
            for level in game.levels
            for complaint in self._misfits(game, game.start(level, 0), words, stations)
        ]

    def _misfits(self, game: Game, state: Any, words: Mapping[str, Action], stations: set[str]) -> Iterator[str]:
        begun = game.probes(state)
        if not begun["station"] or not begun["swatches"]:
            yield f"no tool on any station, or no swatch in the strip ({begun['station']!r}, {begun['swatches']})"
            return
        if len(set(begun["canvas"])) != 1:
            yield "the canvas is not blank"
        seen, waiting = {begun["station"]}, [state]
        while waiting:
            here = waiting.pop()
            for arrow in ARROWS:
                there = game.apply(here, words[arrow])
                station = game.probes(there)["station"]
                if station not in seen:
                    seen.add(station)
                    waiting.append(there)
        if seen != stations:
            yield f"the walk around the ring shows {' '.join(sorted(map(repr, seen ^ stations)))}"
        loaded = {game.probes(game.apply(state, words[f"click:{x}"]))["paint"] for x in self.layout.clicks}
        if loaded - {begun["paint"]} != set(begun["swatches"]) - {begun["paint"]}:
            yield f"clicks load {sorted(loaded)}, the strip shows {begun['swatches']}"

    def advice(self, frame: bytes) -> Advice:
        """Needs the region of the way's next dip, and the fact that names its station; nothing before a tap."""
        way = self._way(frame)
        stroke, station = next((word, at) for word, at in way if word == DIP or word.startswith(TAP))
        region = self.layout.strokes[station] if stroke == DIP else None
        told = ((region,), (f"{region}@{station}",)) if region is not None else ((), ())
        return Advice(told[0], way[0][0], told[1])

    def place(self, frame: bytes, word: str) -> str | None:
        here = str(self._probes(frame)["station"])
        return here if here and (word == DIP or word.startswith(TAP)) else None

    def _way(self, frame: bytes) -> list[tuple[str, str]]:
        """The words of a shortest way, and the station at which each is said."""
        layout = self.layout
        probes = self._probes(frame)
        swatches = self.swatches(frame)
        ring = list(layout.stations)
        strokes = [
            Stroke(word, ring.index(station), layout.regions[region])
            for word, station, region in self._strokes(probes["small"] or self._has_small(frame))
        ]
        steps = shortest(
            canvas=probes["canvas"],
            target=probes["target"],
            free=layout.free,
            ring=len(ring),
            at=ring.index(probes["station"]),
            paint=probes["paint"],
            paints=sorted(swatches),
            strokes=strokes,
        )
        words: list[tuple[str, str]] = []
        at = ring.index(probes["station"])
        for kind, value in steps:
            if kind == "move":
                words.append((self._arrow(ring[at], ring[int(value)]), ring[at]))
                at = int(value)
            else:
                word = f"click:{swatches[int(value)]}" if kind == "paint" else str(value)
                words.append((word, ring[at]))
        return words

    def swatches(self, frame: bytes) -> dict[int, int]:
        """Colour -> column of the middle of its swatch."""
        layout = self.layout
        found: dict[int, int] = {}
        top, middle = layout.strip * SIZE, (layout.strip + layout.swatch // 2) * SIZE
        x = 0
        while x < SIZE:
            end = x
            while end < SIZE and frame[top + end] == layout.rim:
                end += 1
            if end - x == layout.swatch:
                centre = x + layout.swatch // 2
                found[frame[middle + centre]] = centre
            x = end + 1
        return found

    def _read(self, frame: bytes) -> dict[str, Any]:
        layout = self.layout
        station = next((name for name, at in layout.stations.items() if pixel(frame, at.outline) == layout.outline), "")
        tap = layout.taps.get(station)
        return {
            "station": station,
            "place": list(layout.stations).index(station) if station else -1,
            "paint": pixel(frame, layout.stations[station].filling) if station else -1,
            "swatches": sorted(self.swatches(frame)),
            "small": tap is not None and pixel(frame, tap) != layout.background,
            "canvas": cells(frame, layout.canvas),
            "target": cells(frame, layout.target),
        }

    def _strokes(self, small: bool) -> list[tuple[str, str, str]]:
        dips = [(DIP, station, region) for station, region in self.layout.strokes.items()]
        taps = [(f"tap:{station}", station, region) for station, region in self.layout.small.items()]
        return [*dips, *(taps if small else [])]

    def _has_small(self, frame: bytes) -> bool:
        """The small tool does not show at every station; the number of swatches tells such levels apart."""
        return bool(self.layout.taps) and len(self.swatches(frame)) >= self.layout.small_from

    def _arrow(self, here: str, there: str) -> str:
        """The arrow between two neighbours of the ring, from where they lie on the screen."""
        (x0, y0), (x1, y1) = (_side(self.layout, name) for name in (here, there))
        if x0 != x1:
            return "right" if x1 > x0 else "left"
        return "down" if y1 > y0 else "up"


def pixel(frame: bytes, at: Point) -> int:
    """The colour at (x, y)."""
    return frame[at[1] * SIZE + at[0]]


def cells(frame: bytes, box: Box) -> list[int]:
    """The colours in a box, in reading order."""
    rows = range(box.y, box.y + box.height)
    return [colour for y in rows for colour in frame[y * SIZE + box.x : y * SIZE + box.x + box.width]]


def halves(width: int, height: int) -> dict[str, frozenset[int]]:
    """`top`, `bottom`, `left`, `right`."""
    where = {(x, y): y * width + x for y in range(height) for x in range(width)}
    return {
        "top": frozenset(i for (x, y), i in where.items() if y < height // 2),
        "bottom": frozenset(i for (x, y), i in where.items() if y >= height // 2),
        "left": frozenset(i for (x, y), i in where.items() if x < width // 2),
        "right": frozenset(i for (x, y), i in where.items() if x >= width // 2),
    }


def triangles(size: int) -> dict[str, frozenset[int]]:
    """`upper-right`, `lower-right`, `lower-left`, `upper-left`, each with its diagonal."""
    where = {(x, y): y * size + x for y in range(size) for x in range(size)}
    last = size - 1
    return {
        "upper-right": frozenset(i for (x, y), i in where.items() if x >= y),
        "lower-right": frozenset(i for (x, y), i in where.items() if x >= last - y),
        "lower-left": frozenset(i for (x, y), i in where.items() if x <= y),
        "upper-left": frozenset(i for (x, y), i in where.items() if x <= last - y),
    }


def blocks(size: int, depth: int, width: int) -> dict[str, frozenset[int]]:
    """`top-block` .. `left-block`: a block in the middle of each edge."""
    low = (size - width) // 2
    middle, near, far = range(low, low + width), range(depth), range(size - depth, size)
    return {
        "top-block": frozenset(y * size + x for y in near for x in middle),
        "right-block": frozenset(y * size + x for y in middle for x in far),
        "bottom-block": frozenset(y * size + x for y in far for x in middle),
        "left-block": frozenset(y * size + x for y in middle for x in near),
    }


def diagonals(size: int) -> frozenset[int]:
    """The cells of both diagonals."""
    return frozenset(y * size + x for y in range(size) for x in range(size) if x in (y, size - 1 - y))


def _side(layout: Layout, station: str) -> Point:
    """-1, 0 or 1 in both directions: where a station lies, by its compass name."""
    return (("E" in station) - ("W" in station), ("S" in station) - ("N" in station))
