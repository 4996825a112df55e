"""The command line: the stages that rules call, and the commands that people call."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from internalize.errors import UserError
from internalize.inputs import named_inputs
from internalize.receipts import Receipt

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

SpecOption = Annotated[str, typer.Option(help="canonical JSON of the settings that the stage uses")]
CodeOption = Annotated[str, typer.Option(help="fingerprint of the stage's code")]
InputOption = Annotated[list[str] | None, typer.Option("--input", help="NAME=RECEIPT, repeated")]
OutputOption = Annotated[Path, typer.Option(help="receipt to write")]
StoreOption = Annotated[Path, typer.Option(help="folder of the payload store")]


def _progress(text: str) -> None:
    typer.echo(text, err=True)


def _spec(text: str) -> dict[str, Any]:
    try:
        spec = json.loads(text)
    except ValueError as error:
        raise UserError("malformed --spec", got=text[:80], expected="a JSON object") from error
    if not isinstance(spec, dict):
        raise UserError("malformed --spec", got=text[:80], expected="a JSON object")
    return spec


def ancestors(receipt: Receipt, made: dict[str, Receipt]) -> dict[str, Receipt]:
    """By hash: the receipts that `receipt` was made from, directly or not; what lies in `made` besides is left out."""
    found: dict[str, Receipt] = {}
    waiting = list(receipt.parents.values())
    while waiting:
        digest = waiting.pop()
        if digest in made and digest not in found:
            found[digest] = made[digest]
            waiting += made[digest].parents.values()
    return found


@app.command()
def stage(
    name: str,
    spec: SpecOption,
    code: CodeOption,
    output: OutputOption,
    input: InputOption = None,
    store: StoreOption = Path("store"),
) -> None:
    """Run one stage of the DAG (called by the rules)."""
    from internalize.stages import run_stage
    from internalize.store import Store

    _one_thread()
    receipt = run_stage(name, _spec(spec), code, named_inputs(input or []), output, Store(store), _progress)
    if name == "report":
        from internalize.receipts import read_receipt
        from internalize.report.publish import publish

        made = {one.hash(): one for one in map(read_receipt, sorted(output.parent.rglob("*.json")))}
        publish(Store(store), ancestors(receipt, made), receipt, output.parent.parent)


@app.command()
def segment(
    spec: SpecOption,
    code: CodeOption,
    output: OutputOption,
    input: InputOption = None,
    store: StoreOption = Path("store"),
) -> None:
    """Run consecutive steps of one arm and seed (called by the rules); resumes at the first step not in the store."""
    from internalize.arms.segment import run_segment
    from internalize.store import Store

    _one_thread()
    run_segment(_spec(spec), code, named_inputs(input or []), output, Store(store), _progress)


@app.command()
def graphs(
    spec: Annotated[str, typer.Option(help='{"config": [KEY=VALUE, ...]} as for snakemake')] = "{}",
    folder: Annotated[Path, typer.Option(help="where the pictures go")] = Path("results"),
) -> None:
    """Draw the workflow's rules and the study's jobs: rulegraph.svg and dag.svg (called by a rule)."""
    from internalize.report.graphs import draw_graphs

    snakefile = Path(os.environ.get("INTERNALIZE_HOME", ".")) / "Snakefile"
    for path in draw_graphs(snakefile, _spec(spec).get("config", []), folder):
        _progress(f"drawn: {path}")


@app.command()
def base(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="train the base anew and hold it against the gate")
    ] = False,
    study: Annotated[Path, typer.Option(help="study file")] = Path("config/bundled.yaml"),
    folder: Annotated[Path | None, typer.Option(help="where the base goes; default: the study's base.prebuilt")] = None,
) -> None:
    """Say where the study's base comes from, or make it again (about 4 CPU minutes)."""
    from internalize.base.prebuilt import read_provenance
    from internalize.study import load_study
    from internalize.study_base import Base

    _one_thread()
    loaded = load_study(study)
    if not isinstance(loaded.base, Base):
        raise UserError("the study's base comes from the hub", where=f"{study}: base", got=loaded.base.repo)
    target = folder or (Path(loaded.base.prebuilt) if loaded.base.prebuilt else None)
    if target is None:
        raise UserError(
            "the study has no prebuilt base", where=f"{study}: base.prebuilt", fix="name a folder with --folder"
        )
    if rebuild:
        from internalize.base.rebuild import rebuild as make

        make(target, loaded.game.plain(), loaded.base.recipe, loaded.base.gate.plain(), _progress)
    typer.echo(json.dumps(read_provenance(target).model_dump(), indent=2))


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(help="model folder in Hugging Face layout, such as prebuilt/dipwheel")],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="first port; 0 takes free ones")] = 0,
    processes: Annotated[int, typer.Option(help="engines, one process and one thread each")] = 1,
) -> None:
    """Serve a model over a subset of SGLang's native HTTP API (needs the extra `serve`); prints the addresses."""
    from internalize.engine.server import main as serve_engines

    _one_thread()
    serve_engines(model, host, port, processes)


@app.command()
def results(folder: Annotated[Path, typer.Argument(help="results folder of a study")] = Path("results")) -> None:
    """Print the results table and say where the report lies."""
    from internalize.report.console import print_results

    print_results(folder)


@app.command()
def forget(
    stage: str,
    key: Annotated[str, typer.Argument(help="name of the entry's folder: 16 characters")],
    store: StoreOption = Path("store"),
    results: Annotated[Path, typer.Option(help="results folder of the study")] = Path("results"),
) -> None:
    """Set a store entry and the receipts that name it aside, so that the next run computes it anew."""
    from internalize.receipts import read_receipt
    from internalize.store import Store

    where = Store(store).forget(stage, key)
    if where is None:
        raise UserError(
            "no such entry",
            where=str(store / stage),
            got=key,
            expected="the name of a folder there (16 characters)",
            fix="the receipt's `entry` names it",
        )
    typer.echo(f"set aside as {where}")
    for path in sorted(results.rglob("receipts/**/*.json")):
        if read_receipt(path).entry == f"{stage}/{key}":
            path.rename(path.with_suffix(".forgotten"))
            typer.echo(f"set aside: {path}")


@app.command("import")
def import_record(
    folder: Annotated[Path, typer.Argument(help="job logs, or a folder laid out like the published archive")],
    out: Annotated[Path, typer.Option(help="where the tables go")] = Path("results/imported"),
    jobs: Annotated[Path | None, typer.Option(help="JSON file: job id -> run, for logs that do not say it")] = None,
) -> None:
    """Read the logs of a record: every run's rollouts and optimizer steps, as metrics.jsonl and tables."""
    from internalize.imports.tables import import_logs

    import_logs(folder, out, _progress, jobs)
    typer.echo(f"written: {out}")


@app.command("fetch-game")
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
        path = fetch(game.id, game.sha256, _progress)
    source_of(path, game.sha256)
    metadata = read_metadata(path, game.metadata_sha256)
    pinned = metadata_digest(metadata) if metadata else None
    typer.echo(json.dumps({"file": str(path), "sha256": game.sha256, "metadata_sha256": pinned}, indent=2))


def _one_thread() -> None:
    """One compute thread a process: two processes of one thread beat one of two on small machines (measured)."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"


def main() -> None:
    """Entry point: user errors are printed, not raised."""
    try:
        app()
    except UserError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
