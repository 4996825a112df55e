"""`internalize plan` and `lanes`: what a study will cost, and how it looks, before anything is submitted.

Invariant: it reads the study, the receipts and the store, and writes nothing but the pictures that it is asked for.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from internalize.errors import UserError

if TYPE_CHECKING:
    from internalize.workflow import Plan

StudyOption = Annotated[
    str | None, typer.Option("--study", "--configfile", help="study file; default: config/bundled.yaml")
]
ArmsOption = Annotated[str | None, typer.Option("--arms", help="arms, blanks between; default: all")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="override such as rl.lr=2e-4, repeated")]
StepsOption = Annotated[int | None, typer.Option("--steps-per-job", help="steps of an arm that one job runs")]
StoreFolder = Annotated[Path, typer.Option("--store", help="folder of the payload store")]


def config_of(study: str | None, arms: str | None, set: list[str] | None, steps: int | None) -> dict[str, object]:
    """The options as values of Snakemake's `--config`."""
    given = {"study": study, "arms": arms, "set": " ".join(set) if set else None, "steps_per_job": steps}
    return {key: value for key, value in given.items() if value is not None}


def repository() -> Path:
    """The folder with the Snakefile: this one, that of INTERNALIZE_HOME, or the checkout that the package lies in.

    Raises:
        UserError: there is none.
    """
    candidates = [Path(), Path(os.environ.get("INTERNALIZE_HOME", ".")), Path(__file__).resolve().parents[2]]
    for folder in candidates:
        if (folder / "Snakefile").is_file() and (folder / "rules").is_dir():
            return folder
    raise UserError(
        "no workflow here", where=str(Path.cwd()), expected="a Snakefile and rules/", fix="run this in a checkout"
    )


def make_plan(study: str | None, arms: str | None, set: list[str] | None, steps: int | None) -> Plan:
    """The plan that the options name."""
    from internalize.workflow import Plan

    return Plan.from_config(config_of(study, arms, set, steps), repository())


def plan(
    study: StudyOption = None,
    arms: ArmsOption = None,
    set: SetOption = None,
    steps_per_job: StepsOption = None,
    store: StoreFolder = Path("store"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say what is left to do and what it costs; exit status 2 when the study's budget does not allow it."""
    from internalize.costs.estimate import estimate
    from internalize.costs.table import print_plan, report, rules_without_price
    from internalize.costs.verdict import judge, over_budget
    from internalize.store import Store

    made = make_plan(study, arms, set, steps_per_job)
    priced = estimate(made, Store(store))
    verdict = judge(made, priced)
    unpriced = rules_without_price(made.repository, priced)
    if as_json:
        typer.echo(json.dumps(report(priced, verdict, unpriced), indent=2))
    else:
        print_plan(priced, verdict, unpriced)
    if not verdict.ok and made.study.budget is not None and made.study.budget.exceeded == "refuse":
        raise over_budget(verdict)


def lanes(
    study: StudyOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="SVG file to write")] = Path("lanes.svg"),
    arms: ArmsOption = None,
    set: SetOption = None,
) -> None:
    """Draw the arms of a study as lanes: steps by phase, with the rows and harvests that feed them."""
    from internalize.files import write_text
    from internalize.report.lanes import lanes_svg

    write_text(output, lanes_svg(make_plan(study, arms, set, None).study))
    typer.echo(f"drawn: {output}")


def docs(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--folder", help="folder of the documentation")] = Path("docs"),
) -> None:
    """Write what is taken from the code: the schema, docs/reference and docs/dag (called by `make docs`)."""
    from internalize.manual.pages import write_references
    from internalize.report.dag_pages import write_pages
    from internalize.study import write_schema

    write_schema(repository() / "config" / "study.schema.json")
    for path in [*write_references(context.find_root().command, folder), *write_pages(repository(), folder / "dag")]:
        typer.echo(f"written: {path}")


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(plan)
    app.command()(lanes)
    app.command(hidden=True)(docs)
