"""Commands about harnesses: what plays the episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from internalize.cli_common import say
from internalize.errors import UserError
from internalize.threads import one_thread

harness = typer.Typer(no_args_is_help=True, help="What plays the episodes: in process, or an agent CLI.")


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.add_typer(harness, name="harness")


@harness.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="harnesses that must work; all are tried by default")
    ] = None,
    study: Annotated[Path, typer.Option(help="study file whose game and base are played")] = Path(
        "config/bundled.yaml"
    ),
    model: Annotated[Path | None, typer.Option(help="model folder; default: the study's base.prebuilt")] = None,
) -> None:
    """Say which harnesses are installed, at which version, and play one episode with each; it must equal the one played
    in process. Exit status 1 when one that was named, or is installed, does not work."""
    from internalize.games import make_game
    from internalize.harness.check import check as play_each
    from internalize.harness.check import failing, render
    from internalize.study import load_study

    one_thread()
    loaded = load_study(study)
    base = model or (Path(loaded.base.prebuilt) if loaded.base.prebuilt else None)
    if base is None:
        raise UserError("the study has no prebuilt base", where=f"{study}: base.prebuilt", fix="name one with --model")
    findings = play_each(base, make_game(**loaded.game.plain()), names, say)
    typer.echo(render(findings))
    if failing(findings, names):
        raise typer.Exit(1)
