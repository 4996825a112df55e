"""Bars in a terminal: what `internalize watch` and a running Snakemake show.

Invariant: what stands in a bar can be read without colours, and the lines fit the terminal: when there are more arms
than lines, finished ones are counted and the rest is cut.
"""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from internalize.control.progress import Bar, Progress
from internalize.control.status import DONE, FAILED, RUNNING, STOPPED

STYLES = {DONE: "green3", RUNNING: "dodger_blue1", FAILED: "red", STOPPED: "yellow"}
WIDTH = 24
FRAME = 6
"""Lines of a terminal that the bars of arms leave free."""


class Bars:
    """The bars of a study, as high as the terminal allows."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._lines((options.height or console.height) - FRAME - len(self.shown.others))

    def _lines(self, room: int) -> RenderResult:
        arms, folded = self.shown.arms, 0
        if len(arms) > room:
            open_ones = [bar for bar in arms if bar.state != DONE]
            folded = len(arms) - len(open_ones)
            arms = open_ones
        kept = arms[: max(1, room)]
        table = Table.grid(padding=(0, 1))
        for justify in ("left", "left", "right", "left", "left"):
            table.add_column(justify=justify, no_wrap=True)
        for bar in [self.shown.whole, *kept]:
            table.add_row(*_cells(bar, self.shown.study if bar is self.shown.whole else bar.name))
        yield table
        for line in self.shown.others:
            yield Text(f"runs: {line}", no_wrap=True, overflow="ellipsis")
        words = [f"{folded} arms are done"] if folded else []
        words += [f"{len(arms) - len(kept)} more arms"] if len(kept) < len(arms) else []
        if words:
            yield Text(f"... and {', '.join(words)}", style="dim")


def _cells(bar: Bar, name: str) -> tuple[RenderableType, ...]:
    style = STYLES.get(bar.state, "grey50")
    drawn = ProgressBar(
        total=max(1, bar.of),
        completed=bar.done if bar.of else 1,
        width=WIDTH,
        complete_style=style,
        finished_style=style,
        style="grey23",
    )
    said = "; ".join([*([bar.state] if bar.state in (FAILED, STOPPED) else []), *([bar.left] if bar.left else [])])
    return Text(name), drawn, Text(f"{bar.done}/{bar.of} {bar.unit}"), Text(said), Text("; ".join(bar.doing))
