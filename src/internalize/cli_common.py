"""What the commands of all `cli*` modules share: options of jobs, the spec they are given, and how they say things."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from internalize.errors import UserError

SpecOption = Annotated[str, typer.Option(help="canonical JSON of the settings that the stage uses")]
CodeOption = Annotated[str, typer.Option(help="fingerprint of the stage's code")]
InputOption = Annotated[list[str] | None, typer.Option("--input", help="NAME=RECEIPT, repeated")]
OutputOption = Annotated[Path, typer.Option(help="receipt to write")]
StoreOption = Annotated[Path, typer.Option(help="folder of the payload store")]


def say(text: str) -> None:
    """One line of progress, apart from what the command prints as its result."""
    typer.echo(text, err=True)


def read_spec(text: str) -> dict[str, Any]:
    """The `--spec` of a job.

    Raises:
        UserError: it is not a JSON object.
    """
    try:
        spec = json.loads(text)
    except ValueError as error:
        raise UserError("malformed --spec", got=text[:80], expected="a JSON object") from error
    if not isinstance(spec, dict):
        raise UserError("malformed --spec", got=text[:80], expected="a JSON object")
    return spec
