"""The figures, as PNG.

Invariant: a figure shows rows of `report.tables` and nothing else, and equal rows give equal bytes. Colours
are the Okabe-Ito set, told apart by colour-blind readers; colour never carries a meaning alone.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

from internalize.files import write_bytes

matplotlib.use("Agg")

Row = Mapping[str, Any]

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442"),
)
GREY, LIGHT = "#6b6b6b", "#d9d9d9"
STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "figure.dpi": 150,
    "svg.hashsalt": "internalize",
}
PANEL = (2.9, 2.05)
"""Width and height of a small panel, inches."""
FORMS = (
    ("nll_play", "needed in a think", BLUE, "o", "-"),
    ("nll_qa", "question, wording of thinks", GREEN, "s", "-"),
    ("nll_other", "question, other wording", ORANGE, "^", "-"),
    ("nll_paraphrase", "held-out paraphrase", RED, "D", "-"),
    ("nll_cloze", "cloze", PURPLE, "v", "-"),
    ("nll_play_false", "false fact, needed in a think", GREY, "", "--"),
)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG that depends on the figure alone."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": ""})
    write_bytes(path, buffer.getvalue())


def trajectories(
    path: Path,
    rows: Sequence[Row],
    phases: Mapping[str, Sequence[str]],
    stops: Mapping[str, tuple[int, int, int]],
    reference: str,
) -> None:
    """Return of each rollout, one panel an arm.

    Args:
        rows: `tables.trajectories`.
        phases: arm -> phase of each step.
        stops: arm -> first step at which the guard stopped a seed, seeds stopped, seeds.
        reference: arm whose line stands in every panel.
    """

    def draw(axes: Axes, arm: str) -> None:
        _shade(axes, phases[arm])
        own = [row for row in rows if row["arm"] == arm and row["return"] is not None]
        if arm != reference:
            # by rollout, not by step: an arm with SFT first begins to play later
            other = [row for row in rows if row["arm"] == reference and row["return"] is not None]
            shift = own[0]["step"] if own else 0
            axes.plot([r["step"] + shift for r in other], [r["return"] for r in other], color=GREY, lw=1, ls="--")
        steps = [row["step"] for row in own]
        _band(axes, steps, [r["return_low"] for r in own], [r["return_high"] for r in own], BLUE, 0.18)
        _band(axes, steps, [r["seed_min"] for r in own], [r["seed_max"] for r in own], BLUE, 0.25)
        axes.plot(steps, [row["return"] for row in own], color=BLUE, marker="o", ms=3.5, lw=1.6)
        if arm in stops:
            step, stopped, seeds = stops[arm]
            axes.axvline(step, color=RED, lw=1.2)
            axes.plot(step, 0.98, marker="X", color=RED, ms=7, clip_on=False)
            axes.annotate(f"{stopped} of {seeds}", (step, 0.98), (6, -3), textcoords="offset points", color=RED)
        axes.set_ylim(-0.45, 1.05)
        axes.set_xlim(-0.6, max(map(len, phases.values())) - 0.4)
        axes.axhline(0, color=LIGHT, lw=0.8)

    handles: list[Any] = [
        Line2D([], [], color=BLUE, marker="o", ms=3.5, label="mean over seeds"),
        Patch(color=BLUE, alpha=0.45, label="range of the seeds"),
        Patch(color=BLUE, alpha=0.18, label="95 % interval (levels)"),
        *(
            [Line2D([], [], color=GREY, ls="--", label=f"{reference}, same number of rollouts")]
            if any(row["arm"] == reference for row in rows)
            else []
        ),
        Patch(color=YELLOW, alpha=0.35, label="SFT step"),
        Patch(color=GREEN, alpha=0.16, label="joint step"),
    ]
    if stops:
        handles.append(
            Line2D([], [], color=RED, marker="X", ls="-", label="seeds stopped by the guard, the first here")
        )
    save(
        _grid(list(phases), draw, "step of the arm", "shaped return", "Return of the RL rollouts", handles),
        path,
    )


def knowledge(path: Path, rows: Sequence[Row], phases: Mapping[str, Sequence[str]]) -> None:
    """NLL per token of the true facts by form over the steps, one panel an arm; log scale. `rows`:
    `tables.knowledge`."""

    least = min((row[key] for row in rows for key, *_ in FORMS if row.get(key) is not None), default=1.0)
    floor = max(1e-3, 10 ** math.floor(math.log10(max(least / 1.5, 1e-3))))

    def draw(axes: Axes, arm: str) -> None:
        _shade(axes, phases[arm])
        own = [row for row in rows if row["arm"] == arm]
        for key, _, colour, marker, line in FORMS:
            seen = [(row["step"], row[key]) for row in own if row.get(key) is not None]
            if seen:
                values = [max(value, floor) for _, value in seen]
                axes.plot([s for s, _ in seen], values, color=colour, marker=marker, ms=3, lw=1.3, ls=line)
        axes.set_yscale("log")
        axes.set_ylim(floor, 30)
        axes.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set_xlim(-1.5, max(map(len, phases.values())) - 0.4)

    handles: list[Any] = [Line2D([], [], color=c, marker=m, ms=4, ls=ls, label=text) for _, text, c, m, ls in FORMS]
    handles += [
        Patch(color=YELLOW, alpha=0.35, label="SFT step"),
        Patch(color=GREEN, alpha=0.16, label="joint step"),
    ]
    title = "Knowledge: NLL per token (nats) by form; step -1 is the base"
    save(_grid(list(phases), draw, "step of the arm", "NLL per token", title, handles), path)


def forest(path: Path, rows: Sequence[Row], reference: str) -> None:
    """Return of the SFT-only policy with its interval, from the first rollout and from the eval. `rows`:
    `tables.sft_only`."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.2, 1.5 + 0.42 * len(rows)), layout="constrained")
        axes = figure.subplots()
        base = next((row["eval_return"] for row in rows if row["arm"] == reference), None)
        if base is not None:
            axes.axvline(base, color=GREY, lw=1, ls="--")
        for at, row in enumerate(rows):
            _whisker(axes, row, "rollout_return", at - 0.13, ORANGE, "s")
            _whisker(axes, row, "eval_return", at + 0.13, BLUE, "o", hollow=bool(row.get("eval_diff_noise")))
        axes.set_yticks(range(len(rows)), [row["arm"] for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("shaped return, 95 % interval")
        axes.set_title("The SFT-only policy: what each arm's rows have done before any RL", loc="left")
        handles = [
            Line2D([], [], color=ORANGE, marker="s", ls="-", label="first RL rollout"),
            Line2D([], [], color=BLUE, marker="o", ls="-", label="eval on common levels"),
            Line2D(
                [],
                [],
                color=BLUE,
                marker="o",
                ls="",
                mfc="white",
                label=f"... inside the noise of {reference}",
            ),
        ]
        if base is not None:
            handles.append(Line2D([], [], color=GREY, ls="--", label=f"{reference} (eval)"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        save(figure, path)


def recital(path: Path, rows: Sequence[Row]) -> None:
    """Reciting beside using, one line an arm. `rows`: `tables.sft_only`."""
    panels = (
        (
            "Reciting: share of thinks",
            (
                ("recital_share", "state a true fact", SKY, "o"),
                ("top_recital_share", "... before `need`", BLUE, "D"),
                ("needed_recited_share", "state every fact needed now", GREEN, "s"),
            ),
        ),
        (
            "Using: share of replies with the right call",
            (
                ("right_given_recited", "needed facts stated", GREEN, "s"),
                ("right_given_top_recital", "true fact before `need`", BLUE, "D"),
                ("right_given_not_recited", "needed facts not stated", ORANGE, "o"),
            ),
        ),
    )
    with matplotlib.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12)
        figure = Figure(figsize=(9.0, 1.9 + 0.36 * len(rows)), layout=layout)
        axes_row = figure.subplots(1, 2, sharey=True)
        for axes, (title, series) in zip(axes_row, panels, strict=True):
            for at, row in enumerate(rows):
                seen = [row[key] for key, *_ in series if row.get(key) is not None]
                if seen:
                    axes.plot([min(seen), max(seen)], [at, at], color=LIGHT, lw=2, zorder=1)
                for key, _, colour, marker in series:
                    if row.get(key) is not None:
                        axes.plot(
                            row[key],
                            at,
                            color=colour,
                            marker=marker,
                            ms=6,
                            ls="",
                            mec="white",
                            mew=0.7,
                            clip_on=False,
                        )
            axes.set_xlim(-0.02, 1.02)
            axes.set_xticks(np.linspace(0, 1, 5), [f"{100 * x:.0f} %" for x in np.linspace(0, 1, 5)])
            axes.set_title(title, loc="left")
            axes.grid(axis="y", visible=False)
            handles = [Line2D([], [], color=c, marker=m, ls="", label=text) for _, text, c, m in series]
            below = axes.transAxes + ScaledTranslation(0, -0.28, figure.dpi_scale_trans)
            axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=below)
        axes_row[0].set_yticks(range(len(rows)), [row["arm"] for row in rows])
        axes_row[0].set_ylim(len(rows) - 0.4, -0.6)
        save(figure, path)


def _grid(
    names: Sequence[str],
    draw: Callable[[Axes, str], None],
    xlabel: str,
    ylabel: str,
    title: str,
    handles: Sequence[Any],
) -> Figure:
    """Small panels with common axes, a title and one legend for all."""
    columns = min(4, max(1, math.ceil(math.sqrt(len(names)))))
    lines = math.ceil(len(names) / columns)
    with matplotlib.rc_context(STYLE):
        across = min(len(handles), {1: 2, 2: 2, 3: 3}.get(columns, 4))
        below = 0.2 * math.ceil(len(handles) / across)
        size = (max(7.5, PANEL[0] * columns), 0.9 + below + PANEL[1] * lines)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, name in zip(panels.flat, names, strict=False):
            draw(axes, name)
            axes.set_title(name, loc="left", fontweight="bold")
            axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6, integer=True))
        for axes in panels.flat[len(names) :]:
            axes.set_visible(False)
        for at, axes in enumerate(panels.flat[: len(names)]):
            # sharex hides the ticks of a panel whose lower neighbour is an empty one
            lowest = at + columns >= len(names)
            axes.tick_params(labelbottom=lowest)
            axes.set_xlabel(xlabel if lowest else "")
            axes.set_ylabel(ylabel if at % columns == 0 else "")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        figure.legend(handles=list(handles), loc="outside lower center", ncols=across)
        return figure


def _shade(axes: Axes, phases: Sequence[str]) -> None:
    for step, phase in enumerate(phases):
        if phase in ("sft", "joint"):
            colour, alpha = (YELLOW, 0.35) if phase == "sft" else (GREEN, 0.16)
            axes.axvspan(step - 0.5, step + 0.5, color=colour, alpha=alpha, lw=0, zorder=0)


def _band(axes: Axes, steps: Sequence[int], low: Sequence[Any], high: Sequence[Any], colour: str, alpha: float) -> None:
    at = [i for i, bound in enumerate(low) if bound is not None and high[i] is not None]
    if at:
        axes.fill_between(
            [steps[i] for i in at],
            [low[i] for i in at],
            [high[i] for i in at],
            color=colour,
            alpha=alpha,
            lw=0,
        )


def _whisker(axes: Axes, row: Row, key: str, at: float, colour: str, marker: str, hollow: bool = False) -> None:
    if row.get(key) is None:
        return
    if row.get(f"{key}_low") is not None:
        axes.plot([row[f"{key}_low"], row[f"{key}_high"]], [at, at], color=colour, lw=1.8, solid_capstyle="butt")
    axes.plot(row[key], at, color=colour, marker=marker, ms=5.5, mfc="white" if hollow else colour)
