"""Commands around the report: its page (called by a rule), a cell's evidence, two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from internalize.cli_common import StoreOption, say

ResultsOption = Annotated[Path, typer.Option("--results", help="results folder of the study")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    for command in (page, explain, compare):
        app.command()(command)


def page(
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
    output: Annotated[
        Path | None, typer.Option(help="page to write; default: report/index.html in the results")
    ] = None,
    all_episodes: Annotated[
        bool, typer.Option("--all-episodes", help="every episode, in files beside the page; else a sample in it")
    ] = False,
) -> None:
    """Write the study's page (called by a rule): one file that opens in a browser without server or network."""
    from internalize.report.page import write_page
    from internalize.report.results import read_results

    write_page(read_results(results, store), output or results / "report" / "index.html", all_episodes, say)


def explain(
    table: Annotated[str, typer.Argument(help="summary, sft_only, final, trajectories, knowledge, behaviour or costs")],
    row: Annotated[str, typer.Argument(help="arm; ARM:STEP in trajectories and knowledge; a stage in costs")],
    column: Annotated[str, typer.Argument(help="heading of a column in the table's CSV")],
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say where a number comes from, and make it again from there; status 1 when it does not come out equal."""
    from internalize.report.evidence import Evidence
    from internalize.report.explain import explain as ask
    from internalize.report.explain import lines
    from internalize.report.results import read_results

    found = ask(Evidence(read_results(results, store)), table, row, column)
    for line in [json.dumps(found.plain(), indent=1)] if as_json else lines(found):
        typer.echo(line)
    raise typer.Exit(0 if found.equal else 1)


def compare(
    one: Annotated[str, typer.Argument(help="an arm, a results folder, an archive, or FOLDER:ARM")],
    other: Annotated[str, typer.Argument(help="the same; differences are ONE - OTHER")],
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Two arms, runs or archives side by side: paired differences, where they part, settings that differ."""
    from internalize.report.compare import compare as hold
    from internalize.report.compare import text
    from internalize.report.sides import read_side

    found = hold(read_side(one, results, store), read_side(other, results, store))
    typer.echo(json.dumps(found.plain(), indent=1) if as_json else text(found))
