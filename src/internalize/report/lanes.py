"""A study as swim lanes: a lane an arm, a box a step in the colour of its phase, with the rows that feed it.

Invariant: equal studies give equal bytes (plain SVG text, no drawing library), and every arm, step, row set and harvest
of the study is in the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from internalize.schedule import cite_weights, phases, resets
from internalize.study import Study, resolved_arm, runnable_arms
from internalize.study_arms import Arm
from internalize.study_rows import harvest_of, parent_of

COLOURS = {"sft": "#4c8fd0", "rl": "#3f9d6b", "joint": "#9a63b8"}
"""Of a phase; the same in every picture."""
PHASES = {"sft": "SFT step", "rl": "RL rollout", "joint": "joint step"}
BOX, GAP, LANE, BAR = 17, 3, 30, 22
"""Width of a step, gap between steps, height of a lane, height of a box (pixels)."""
CHAR, MARGIN, COLUMN = 6.3, 14, 46
"""Width of a character at 11 px, outer margin, gap between columns."""
FEEDS = ("#b5651d", "#2f7f86", "#a33c5e", "#6b7a1f", "#7a5aa8", "#3c6fb0", "#8a6d3b", "#5c5c5c")
"""Of the lines from a row set, in turn, so that each can be followed."""
INK, PALE, LINE = "#222222", "#f4f4f2", "#9a9a9a"
FONT = "font-family=\"'DejaVu Sans', Verdana, Helvetica, Arial, sans-serif\""


@dataclass(frozen=True)
class Box:
    """A box with a name in it: left, top, width, height."""

    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> tuple[float, float]:
        """Middle of the right edge."""
        return self.x + self.w, self.y + self.h / 2

    @property
    def left(self) -> tuple[float, float]:
        """Middle of the left edge."""
        return self.x, self.y + self.h / 2


def lanes_svg(study: Study) -> str:
    """The picture as SVG text; arms that do not run are drawn in outline."""
    arms = [resolved_arm(study, name) for name in study.arms]
    top = 64.0
    lane_y = {arm.name: top + LANE * at for at, arm in enumerate(arms)}
    rows = _columns(study, arms)
    places, x = _feeders(study, arms, rows, lane_y)
    names_x = x + COLUMN
    steps_x = names_x + CHAR * max(len(_title(arm)) for arm in arms) + 16
    longest = max(len(phases(arm)) for arm in arms)
    evals_x = steps_x + longest * (BOX + GAP) + 14
    width = evals_x + 64 + MARGIN
    height = max([top + LANE * len(arms), *(box.y + box.h + 10 for box in places.values())]) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}"'
        f' viewBox="0 0 {_n(width)} {_n(height)}" {FONT} font-size="11">',
        f"<title>{escape(f'Arms of study {study.name}')}</title>",
        f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>',
        _text(evals_x + 29, top - 8, "evals", size=8, anchor="middle", fill="#6a6a6a"),
        _text(MARGIN, 26, f"Study {study.name}: arms, their steps, and what feeds them", size=15, weight="bold"),
        *(
            _text(steps_x + at * (BOX + GAP) + BOX / 2, top - 8, str(at), size=8, anchor="middle", fill="#6a6a6a")
            for at in range(longest)
            if at % 5 == 0 or longest <= 20
        ),
    ]
    hues = {name: FEEDS[at % len(FEEDS)] for at, name in enumerate(sorted(rows))}
    for arm in arms:
        parts += _feeds(arm, places, hues, lane_y[arm.name], names_x)
    runs = {arm.name for arm in runnable_arms(study)}
    for arm in arms:
        parts += _lane(arm, arm.name in runs, lane_y[arm.name], names_x, steps_x, evals_x, width)
    for name, box in places.items():
        kind, _, label = name.partition(":")
        parts.append(
            _named(box, label, "#ffffff", LINE) if kind == "harvest" else _named(box, label, PALE, hues[label])
        )
    parts += _row_edges(study, rows, places)
    parts += _legend(arms, height - 32)
    return "\n".join([*parts, "</svg>", ""])


def _columns(study: Study, arms: Sequence[Arm]) -> dict[str, int]:
    """Row sets in use -> how many others they are cut from, one from the other."""
    depths: dict[str, int] = {}
    for arm in arms:
        for name in arm.rows:
            chain = [name]
            while (parent := parent_of(study.rows[chain[-1]])) is not None:
                chain.append(parent)
            for depth, one in enumerate(reversed(chain)):
                depths[one] = depth
    return depths


def _feeders(
    study: Study, arms: Sequence[Arm], rows: Mapping[str, int], lane_y: Mapping[str, float]
) -> tuple[dict[str, Box], float]:
    """Boxes of harvests and row sets, each near the lanes that it feeds, and where the last column ends."""
    want: dict[str, list[float]] = {name: [] for name in rows}
    for arm in arms:
        for name in arm.rows:
            at: str | None = name
            while at is not None:
                want[at].append(lane_y[arm.name])
                at = parent_of(study.rows[at])
    sources: dict[str, list[float]] = {}
    for name in rows:
        if (harvest := harvest_of(study.rows[name])) is not None:
            sources.setdefault(harvest, []).extend(want[name])
    places: dict[str, Box] = {}
    x = float(MARGIN)
    columns = [[f"harvest:{name}" for name in sources]]
    columns += [[f"rows:{name}" for name in rows if rows[name] == depth] for depth in sorted(set(rows.values()))]
    for column in columns:
        if not column:
            continue
        wanted = {name: (sources if name.startswith("harvest:") else want)[name.partition(":")[2]] for name in column}
        w = CHAR * max(len(name.partition(":")[2]) for name in column) + 14
        y = min(lane_y.values())
        for name in sorted(column, key=lambda one: (sum(wanted[one]) / len(wanted[one]), one)):
            y = max(y, sum(wanted[name]) / len(wanted[name]))
            places[name] = Box(x, y, w, BAR)
            y += BAR + 8
        x += w + COLUMN
    return places, x - COLUMN if places else x


def _feeds(arm: Arm, places: Mapping[str, Box], hues: Mapping[str, str], y: float, x: float) -> list[str]:
    return [_curve(places[f"rows:{name}"].right, (x - 6, y + BAR / 2), hues[name]) for name in sorted(arm.rows)]


def _row_edges(study: Study, rows: Iterable[str], places: Mapping[str, Box]) -> list[str]:
    edges = []
    for name in rows:
        harvest, parent = harvest_of(study.rows[name]), parent_of(study.rows[name])
        source = f"harvest:{harvest}" if harvest is not None else f"rows:{parent}" if parent is not None else None
        if source is not None:
            edges.append(_curve(places[source].right, places[f"rows:{name}"].left, LINE))
    return edges


def _lane(arm: Arm, runs: bool, y: float, names_x: float, steps_x: float, evals_x: float, width: float) -> list[str]:
    planned = not runs
    parts = [
        f'<line x1="{_n(names_x)}" y1="{_n(y + LANE - 4)}" x2="{_n(width - MARGIN)}" y2="{_n(y + LANE - 4)}"'
        ' stroke="#e6e6e6"/>',
        _text(names_x, y + 15, _title(arm), fill="#8a8a8a" if planned else INK),
    ]
    order = phases(arm)
    inherited = len(arm.inherited)
    cleared = resets(order, arm.rl.frozen_adam)
    for step, phase in enumerate(order):
        x = steps_x + step * (BOX + GAP)
        style = f'fill="{COLOURS[phase]}"'
        if planned:
            style = f'fill="none" stroke="{COLOURS[phase]}" stroke-dasharray="3 2"'
        elif step < inherited:
            style += ' fill-opacity="0.3"'
        parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{BOX}" height="{BAR}" rx="3" {style}>'
            f"<title>{escape(_step_title(arm, step, phase, cleared[step]))}</title></rect>"
        )
        if cleared[step]:
            left = x - GAP / 2
            parts.append(
                f'<path d="M {_n(left)} {_n(y - 1)} L {_n(left - 4)} {_n(y - 7)} L {_n(left + 4)} {_n(y - 7)} Z"'
                f' fill="{INK}"/>'
            )
    if isinstance(arm.cite_weight, list):
        for step, (phase, weight) in enumerate(zip(order, cite_weights(arm), strict=True)):
            if phase != "rl" and step >= inherited:
                x = steps_x + step * (BOX + GAP) + BOX / 2
                fill = COLOURS[phase] if planned else "#ffffff"
                parts.append(_text(x, y + 15, f"{weight:g}", size=9, anchor="middle", fill=fill))
    end = steps_x + len(order) * (BOX + GAP)
    dash = ' stroke-dasharray="3 2"' if planned else ""
    parts.append(
        f'<line x1="{_n(end)}" y1="{_n(y + BAR / 2)}" x2="{_n(evals_x - 3)}" y2="{_n(y + BAR / 2)}"'
        f' stroke="{LINE}"{dash}/>'
    )
    parts.append(
        f'<rect x="{_n(evals_x)}" y="{_n(y)}" width="58" height="{BAR}" rx="3" fill="{PALE}" stroke="{LINE}"{dash}/>'
    )
    count = len(arm.seeds)
    label = arm.status if planned else f"{count} seed{'s' if count > 1 else ''}"
    parts.append(_text(evals_x + 29, y + 15, label, size=10, anchor="middle", fill=INK))
    return parts


def _legend(arms: Sequence[Arm], y: float) -> list[str]:
    used = [phase for phase in PHASES if any(phase in phases(arm) for arm in arms)]
    x, parts = float(MARGIN), []
    for phase in used:
        parts.append(f'<rect x="{_n(x)}" y="{_n(y - 11)}" width="{BOX}" height="14" rx="3" fill="{COLOURS[phase]}"/>')
        parts.append(_text(x + BOX + 6, y, PHASES[phase]))
        x += BOX + 24 + CHAR * len(PHASES[phase])
    words = []
    if any(any(resets(phases(arm), arm.rl.frozen_adam)) for arm in arms):
        parts.append(
            f'<path d="M {_n(x + 4)} {_n(y)} L {_n(x)} {_n(y - 7)} L {_n(x + 8)} {_n(y - 7)} Z" fill="{INK}"/>'
        )
        text = "Adam moments cleared"
        parts.append(_text(x + 14, y, text))
        x += 32 + CHAR * len(text)
    if any(isinstance(arm.cite_weight, list) for arm in arms):
        words.append("number in a step: cite weight")
    if any(arm.inherited for arm in arms):
        words.append("pale: steps of the arm that it continues")
    words.append("left: harvests (white) and row sets (grey)")
    parts.append(_text(MARGIN, y + 19, "; ".join(words), fill="#6a6a6a"))
    return parts


def _title(arm: Arm) -> str:
    return arm.name


def _step_title(arm: Arm, step: int, phase: str, cleared: bool) -> str:
    return f"{arm.name}, step {step}: {PHASES[phase]}{', Adam moments cleared before it' if cleared else ''}"


def _named(box: Box, name: str, fill: str, edge: str) -> str:
    rect = f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.w)}" height="{_n(box.h)}" rx="3"'
    return f'{rect} fill="{fill}" stroke="{edge}"/>' + _text(box.x + 7, box.y + 15, name)


def _curve(start: tuple[float, float], end: tuple[float, float], colour: str) -> str:
    (x0, y0), (x1, y1) = start, end
    middle = (x0 + x1) / 2
    path = f"M {_n(x0)} {_n(y0)} C {_n(middle)} {_n(y0)} {_n(middle)} {_n(y1)} {_n(x1 - 4)} {_n(y1)}"
    line = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1"/>'
    head = f"M {_n(x1)} {_n(y1)} L {_n(x1 - 6)} {_n(y1 - 3)} L {_n(x1 - 6)} {_n(y1 + 3)} Z"
    return f'{line}<path d="{head}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, size: float = 11, weight: str = "", anchor: str = "", fill: str = INK) -> str:
    style = f' font-size="{_n(size)}"' if size != 11 else ""
    style += f' font-weight="{weight}"' if weight else ""
    style += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" fill="{fill}"{style}>{escape(text)}</text>'


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
