"""Commands about the published study: read its logs, fetch its game."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from internalize.cli_common import StoreOption, say
from internalize.errors import UserError


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command("import")(import_record)
    app.command("fetch-game")(fetch_game)


def import_record(
    folder: Annotated[Path, typer.Argument(help="job logs, or a folder laid out like the published archive")],
    out: Annotated[Path, typer.Option(help="where the tables go")] = Path("results/imported"),
    jobs: Annotated[Path | None, typer.Option(help="JSON file: job id -> run, for logs that do not say it")] = None,
    study: Annotated[
        Path | None, typer.Option(help="study whose arms were run: their recorded steps get receipts and count as done")
    ] = None,
    store: StoreOption = Path("store"),
) -> None:
    """Read the logs of a record: every run's rollouts and optimizer steps, as metrics.jsonl, tables and receipts."""
    from internalize.imports.tables import find_logs, write_tables

    read = find_logs(folder, jobs)
    write_tables(read, out, say)
    typer.echo(f"written: {out}")
    if study is not None:
        from internalize.cli_plan import make_plan
        from internalize.imports.steps import import_steps
        from internalize.store import Store

        made = import_steps(read, make_plan(str(study), None, None, None), Store(store), folder, say)
        done = sum(len(one.recorded) for one in made)
        typer.echo(f"{done} recorded steps of {len(made)} arms in {store}; `internalize plan` says what is left")


def fetch_game(
    study: Annotated[Path, typer.Argument(help="study file with a game of kind arc")] = Path("config/cd82.yaml"),
) -> None:
    """Fetch the study's game (needs ARC_API_KEY and a network), check it, and print what can be pinned."""
    from internalize.games.arc.fetch import fetch
    from internalize.games.arc.place import locate, metadata_digest, read_metadata, source_of
    from internalize.study import load_study
    from internalize.study_games import ArcGame

    game = load_study(study).game
    if not isinstance(game, ArcGame):
        raise UserError("the study's game is bundled", where=f"{study}: game.kind", got=game.kind)
    try:
        path = locate(game.id, game.file)
    except UserError:
        path = fetch(game.id, game.sha256, say)
    source_of(path, game.sha256)
    metadata = read_metadata(path, game.metadata_sha256)
    pinned = metadata_digest(metadata) if metadata else None
    typer.echo(json.dumps({"file": str(path), "sha256": game.sha256, "metadata_sha256": pinned}, indent=2))
