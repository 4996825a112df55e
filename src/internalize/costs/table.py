"""The plan for readers: a table for people, JSON for programs.

Invariant: both show the same figures, and every row says where its figures come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from internalize.costs.estimate import MEAN, MEASURED, MODEL, Estimate, Sum
from internalize.costs.model import GIB, TB
from internalize.costs.verdict import Verdict

COLUMNS = ("to run / all", "node-hours", "GPU-hours", "wall", "disk at peak", "kept", "files", "figures")
LAPTOP = "the study states no `cost`: seconds and nodes are a laptop's, not those of the machine that this base needs"
RULE = re.compile(r"^ *rule (\w+):", re.M)
OPTIONAL = frozenset({"harvest", "rows", "fetch_game", "numerics", "convert", "archive"})
"""Rules that a study may have no job of."""
WIDTH = 150
"""Columns of a table that goes into a file or a pipe."""
SOURCES = {MEASURED: "measured", MEAN: "mean", MODEL: "model"}


def report(priced: Estimate, verdict: Verdict, unpriced: list[str]) -> dict[str, Any]:
    """Everything the table shows, as JSON values; sizes in bytes, times in seconds or hours as named."""
    total = priced.total()
    return {
        "study": priced.study,
        "stages": {name: part.plain() for name, part in priced.by_stage().items()},
        "arms": {name: part.plain() for name, part in priced.by_arm().items()},
        "total": total.plain(),
        "spent_node_hours": round(priced.spent, 4),
        "stored_bytes": priced.stored,
        "checkpoint": {
            "parameters": priced.model.parameters,
            "bytes_per_parameter": priced.model.bytes_per_parameter,
            "bytes": priced.model.checkpoint_bytes(),
        },
        "budget": verdict.plain(),
        "not_priced": unpriced,
        "laptop_figures": priced.laptop,
    }


def print_plan(priced: Estimate, verdict: Verdict, unpriced: list[str], console: Console | None = None) -> None:
    """Prints the plan: by stage, by arm, the sum, the budget."""
    if console is None:
        console = Console()
        console = console if console.is_terminal else Console(width=WIDTH)
    table = Table(title=f"plan of study {priced.study}: what is left to do, and what it costs", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "figures" else "right", no_wrap=True)
    for name, part in priced.by_stage().items():
        table.add_row("arms" if name == "segment" else name, *_cells(part))
    table.add_section()
    for name, part in priced.by_arm().items():
        fits = Text(name) if name not in verdict.misses else Text(f"{name} !", style="red")
        table.add_row(fits, *_cells(part))
    table.add_section()
    table.add_row("all", *_cells(priced.total()), style="bold")
    console.print(table)
    model = priced.model
    console.print(
        f"a checkpoint: {model.parameters:,} parameters x {model.bytes_per_parameter:g} B = "
        f"{size(model.checkpoint_bytes())} ({model.checkpoint_bytes() / GIB:.4g} GiB)",
        highlight=False,
    )
    console.print(
        "wall: the longest chain of jobs, if all that can run side by side does. figures: measured = this very result, "
        "mean = of finished ones of its kind, model = by `cost` of the study file.",
        highlight=False,
        style="dim",
    )
    if priced.laptop:
        console.print(LAPTOP, style="yellow", highlight=False)
    if unpriced:
        console.print(f"rules without a price: {', '.join(unpriced)}", style="yellow", highlight=False)
    _print_budget(priced, verdict, console)


def rules_without_price(repository: Path, priced: Estimate) -> list[str]:
    """Rules of the workflow that the plan knows nothing about."""
    known = {one.job.rule for one in priced.priced} | {"all"}
    found = set()
    for path in [repository / "Snakefile", *sorted((repository / "rules").glob("*.smk"))]:
        if path.is_file():
            found |= set(RULE.findall(path.read_text()))
    return sorted(found - known - OPTIONAL)


def size(count: float) -> str:
    """Bytes with a unit: `378 GB`."""
    for unit, factor in (("TB", TB), ("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e3:.3g} kB" if count else "-"


def span(seconds: float) -> str:
    """Seconds as people read them: `3 h 20 min`, `12.5 min`, `8 s`."""
    if seconds >= 172800:
        return f"{seconds / 86400:.1f} d"
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds else "-"


def _cells(part: Sum) -> tuple[str, ...]:
    done = part.jobs_left == 0
    return (
        f"{part.jobs_left} / {part.jobs}",
        _number(part.node_hours),
        _number(part.gpu_hours),
        span(part.wall_s),
        size(part.peak_bytes),
        size(part.kept_bytes),
        f"{part.files}" if part.files else "-",
        "done" if done else _sources(part),
    )


def _sources(part: Sum) -> str:
    return " + ".join(SOURCES[source] for source in (MEASURED, MEAN, MODEL) if source in part.sources)


def _number(value: float) -> str:
    return f"{value:.3g}" if value else "-"


def _print_budget(priced: Estimate, verdict: Verdict, console: Console) -> None:
    used: Mapping[str, str] = {
        "node_hours": f"{priced.spent:.4g} node-hours used so far",
        "disk_tb": f"{size(priced.stored)} stored so far",
    }
    units = {"node_hours": "node-hours", "disk_tb": "TB"}
    for name, limit in verdict.limits.items():
        fits = verdict.needs[name] <= limit
        text = f"budget.{name}: {verdict.needs[name]:.4g} of {limit:g} {units[name]} by the end ({used[name]})"
        console.print(text, style="green" if fits else "red", highlight=False)
    if not verdict.ok:
        console.print(f"arms that fit: {' '.join(verdict.fits) or 'none'}; those with ! do not", highlight=False)
