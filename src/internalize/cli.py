"""The command line: the stages that rules call, and the commands that people call."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from internalize import (
    cli_archive,
    cli_checkpoints,
    cli_control,
    cli_harness,
    cli_plan,
    cli_record,
    cli_report,
    cli_status,
)
from internalize.cli_common import CodeOption, InputOption, OutputOption, SpecOption, StoreOption, read_spec, say
from internalize.cluster import commands as cli_cluster
from internalize.errors import UserError
from internalize.inputs import named_inputs
from internalize.startup import leave
from internalize.threads import one_thread

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


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
    from internalize.budget import spending
    from internalize.stages import run_stage
    from internalize.store import Store

    one_thread()
    with spending(Store(store), name, output.stem):
        receipt = run_stage(name, read_spec(spec), code, named_inputs(input or []), output, Store(store), say)
    if name == "report":
        from internalize.receipts import ancestors, read_receipt
        from internalize.report.publish import publish

        made = {one.hash(): one for one in map(read_receipt, sorted(output.parent.rglob("*.json")))}
        publish(Store(store), ancestors(receipt, made), receipt, output.parent.parent)


@app.command()
def gates(
    spec: SpecOption,
    code: CodeOption,
    folder: Annotated[Path, typer.Option(help="folder of the gates' receipts")],
    input: InputOption = None,
    store: StoreOption = Path("store"),
) -> None:
    """Run a study's numeric gates, one receipt each (called by a rule)."""
    from internalize.budget import spending
    from internalize.numerics.stage import run_gates
    from internalize.store import Store

    one_thread()
    with spending(Store(store), "numerics", "numerics"):
        run_gates(read_spec(spec), code, named_inputs(input or []), folder, Store(store), say)


@app.command()
def numerics(
    study: Annotated[Path, typer.Argument(help="study file")] = Path("config/bundled.yaml"),
    gate: Annotated[list[str] | None, typer.Option(help="run this gate only; may be repeated")] = None,
    model: Annotated[Path | None, typer.Option(help="model folder; default: the study's base")] = None,
    set: Annotated[list[str] | None, typer.Option(help="override, such as numerics.device=cuda; repeated")] = None,
) -> None:
    """Run the numeric gates of a study here and now, and print what they find; nothing is stored."""
    from internalize.numerics.console import print_gates

    one_thread()
    print_gates(study, gate, model, set or [], say)


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
    from internalize.budget import spending
    from internalize.cluster.timelimit import REQUEUE, TimeIsUp, TimeLimit
    from internalize.store import Store

    one_thread()
    run = "/".join(output.parts[-4:-2])  # ARM/seedN/stepsA-B/stepB.json
    limit = TimeLimit.of_environment()
    try:
        with spending(Store(store), "segment", run) as purse:
            run_segment(
                read_spec(spec), code, named_inputs(input or []), output, Store(store), say, purse, limit.before_step
            )
    except TimeIsUp as stop:
        say(f"stopped after a committed step: {stop}")
        raise typer.Exit(REQUEUE) from None


@app.command()
def graphs(
    spec: Annotated[str, typer.Option(help='{"config": [KEY=VALUE, ...]} as for snakemake')] = "{}",
    folder: Annotated[Path, typer.Option(help="where the pictures go")] = Path("results"),
) -> None:
    """Draw the workflow's rules and the study's jobs: rulegraph.svg and dag.svg (called by a rule)."""
    from internalize.report.graphs import draw_graphs

    snakefile = Path(os.environ.get("INTERNALIZE_HOME", ".")) / "Snakefile"
    for path in draw_graphs(snakefile, read_spec(spec).get("config", []), folder):
        say(f"drawn: {path}")


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

    one_thread()
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

        make(target, loaded.game.plain(), loaded.base.recipe, loaded.base.gate.plain(), say)
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

    one_thread()
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


COMMANDS = (
    *(cli_plan, cli_control, cli_status, cli_checkpoints, cli_harness),
    *(cli_cluster, cli_record, cli_archive, cli_report),
)
for commands in COMMANDS:
    commands.register(app)


def main() -> None:
    """Entry point: user errors are printed, not raised."""
    try:
        app()
    except UserError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    finally:
        leave()


if __name__ == "__main__":
    main()
