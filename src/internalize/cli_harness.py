"""Commands about harnesses: what plays the episodes."""

from __future__ import annotations

import os
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
    app.command()(play)


def play(
    endpoint: Annotated[
        str, typer.Option(help="address of an OpenAI-compatible API, such as http://127.0.0.1:8000/v1")
    ],
    model: Annotated[str, typer.Option(help="model to ask for; default: the first that the endpoint names")] = "",
    study: Annotated[Path, typer.Option(help="study whose game is played, on the levels of its evals")] = Path(
        "config/bundled.yaml"
    ),
    episodes: Annotated[int, typer.Option(min=1, help="episodes, over the levels in turn")] = 16,
    out: Annotated[Path, typer.Option(help="folder for journals, transcripts and results")] = Path("results/endpoint"),
    knowledge: Annotated[
        Path | None, typer.Option(help="text file: sentences that the model is told, one a line")
    ] = None,
    key_variable: Annotated[str, typer.Option(help="environment variable with the key, if one is needed")] = (
        "OPENAI_API_KEY"
    ),
    temperature: Annotated[float | None, typer.Option(help="sampling temperature; default: the endpoint's")] = None,
    parallel: Annotated[int, typer.Option(min=1, help="episodes at once")] = 4,
    seconds: Annotated[float, typer.Option(help="longest wait for one reply")] = 300.0,
) -> None:
    """Let any OpenAI-compatible endpoint play the study's game, for a baseline, and print how it did."""
    try:
        from internalize.harness.endpoint import Endpoint, play_endpoint, table
    except ModuleNotFoundError as error:
        fix = "pip install 'internalize[serve]' (from a checkout: pip install -e '.[serve]')"
        raise UserError("playing over HTTP needs more packages", got=str(error), fix=fix) from error
    from internalize.games import make_game
    from internalize.rollout.plans import single_plans
    from internalize.study import load_study

    loaded = load_study(study)
    told = [line for line in knowledge.read_text(encoding="utf-8").splitlines() if line] if knowledge else []
    options = {} if temperature is None else {"temperature": temperature}
    asked = Endpoint(endpoint, model, os.environ.get(key_variable, ""), seconds, options)
    plans = single_plans("eval", loaded.evals.seed, episodes, loaded.evals.levels)
    try:
        played = play_endpoint(
            asked, make_game(**loaded.game.plain()), plans, out, told=told, parallel=parallel, progress=say
        )
    finally:
        asked.close()
    typer.echo(f"{asked.model} at {endpoint} on {loaded.name}")
    typer.echo(table(played))
    typer.echo(f"written: {out}")


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
