"""Commands around the archive: make it (called by a rule), verify it, read an episode of it, publish it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from internalize.archive.layout import MODELS
from internalize.cli_common import CodeOption, InputOption, OutputOption, SpecOption, StoreOption, read_spec, say
from internalize.errors import UserError
from internalize.inputs import named_inputs

FolderArgument = Annotated[Path, typer.Argument(help="folder of the archive")]
ARCHIVE = Path("results/archive")


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    for command in (archive, verify, cat, publish):
        app.command()(command)


def archive(
    spec: SpecOption,
    code: CodeOption,
    output: OutputOption,
    input: InputOption = None,
    folder: Annotated[Path, typer.Option(help="where the archive goes")] = ARCHIVE,
    store: StoreOption = Path("store"),
    threads: Annotated[int, typer.Option(min=1, help="runs packed at once")] = 1,
) -> None:
    """Pack the study into an archive (called by the rules); a run with unchanged results is not packed again."""
    from internalize.archive.job import run_archive
    from internalize.budget import spending
    from internalize.store import Store

    settings, payloads = read_spec(spec), Store(store)
    with spending(payloads, "archive", "archive"):
        run_archive(settings, code, named_inputs(input or []), output, folder, payloads, say, threads)


def verify(
    folder: FolderArgument = ARCHIVE,
    threads: Annotated[int | None, typer.Option(help="files hashed at once; default: all cores")] = None,
    models: Annotated[Path | None, typer.Option(help="folder of model repositories; default: beside it")] = None,
) -> None:
    """Check every file of an archive against its manifests, and the chain of receipts; status 1 says no."""
    from internalize.archive.verify import verify as check

    problems = check(folder, threads, say, models or _beside(folder))
    for problem in problems:
        typer.echo(f"{problem.path}: {problem.what}")
    typer.echo(f"{len(problems)} problems" if problems else "whole: every file and every receipt is as it should be")
    raise typer.Exit(1 if problems else 0)


def cat(
    folder: FolderArgument,
    run: Annotated[str, typer.Argument(help="run, as registry.jsonl calls it")],
    episode: Annotated[str, typer.Argument(help="episode: r0003-g001-2, or with its step: eval-step0003/eval-0007")],
    file: Annotated[
        str | None, typer.Argument(help="one file of it; all of them, with their names, unless given")
    ] = None,
) -> None:
    """Print an episode out of an archive, unpacking nothing else."""
    from internalize.archive.tarread import find_folder, read_folder, safe_name

    packed = folder / "runs" / safe_name(run, str(folder)) / "work.tar.zst"
    if not packed.is_file():
        runs = sorted(path.parent.name for path in folder.glob("runs/*/work.tar.zst"))
        raise UserError("no such run", where=str(folder), got=run, expected=f"one of: {', '.join(runs) or 'none here'}")
    found = find_folder(packed, episode)
    seen = []
    for member in read_folder(packed, found):
        name = member.name.removeprefix(f"{found}/")
        seen.append(name)
        if file in (None, name):
            if file is None:
                typer.echo(f"==> {found}/{name} <==")
            sys.stdout.flush()
            shutil.copyfileobj(member.data, sys.stdout.buffer)
    if file is not None and file not in seen:
        raise UserError("no such file", where=f"{packed}: {found}", got=file, expected=f"one of: {', '.join(seen)}")


def publish(
    folder: FolderArgument = ARCHIVE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be sent; sends nothing")] = False,
    to: Annotated[str | None, typer.Option(help="`hub`, or the address of a server that speaks its API")] = None,
    dataset: Annotated[str | None, typer.Option(help="OWNER/NAME; default: the study's archive.dataset")] = None,
    models: Annotated[Path | None, typer.Option(help="folder of model repositories; default: beside it")] = None,
    private: Annotated[bool, typer.Option("--private", help="make new repositories private")] = False,
    allow: Annotated[list[str] | None, typer.Option(help="file whose findings are no secrets, repeated")] = None,
    files_a_commit: Annotated[int, typer.Option(min=1, help="most files in a commit")] = 500,
    seconds: Annotated[float, typer.Option(help="longest a call may take, besides sending")] = 600.0,
) -> None:
    """Send the archive and its models to the hub; run it again after any interruption: it goes on."""
    from internalize.archive.send import Options, send

    if dry_run == (to is not None):
        raise UserError("say what to do", expected="either --dry-run or --to hub", got="both" if dry_run else "neither")
    options = Options(to, dataset, models or _beside(folder), private, tuple(allow or ()), files_a_commit)
    for line in send(folder, options, say, seconds):
        typer.echo(line)


def _beside(folder: Path) -> Path:
    """Where the models of an archive are looked for; the archive may be called `.`."""
    return folder.resolve().parent / MODELS
