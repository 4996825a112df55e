"""Commands about the published study: read its logs, fetch its game."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from internalize.cli_common import say
from internalize.errors import UserError


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command("import")(import_record)
    app.command("fetch-game")(fetch_game)


def import_record(
    folder: Annotated[Path, typer.Argument(help="job logs, or a folder laid out like the published archive")],
    out: Annotated[Path, typer.Option(help="where the tables go")] = Path("results/imported"),
    jobs: Annotated[Path | None, typer.Option(help="JSON file: job id -> run, for logs that do not say it")] = None,
) -> None:
    """Read the logs of a record: every run's rollouts and optimizer steps, as metrics.jsonl and tables."""
    from internalize.imports.tables import import_logs

    import_logs(folder, out, say, jobs)
    typer.echo(f"written: {out}")


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
