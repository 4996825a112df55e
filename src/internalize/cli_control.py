"""`internalize rerun`, `status`, `cancel`, `unlock`: steering a study that runs or has run.

Invariant: each has `--dry-run`, which changes nothing; each touches only processes and Slurm jobs of this user that
belong to this working directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from internalize.cli_plan import (
    ArmsOption,
    SetOption,
    StepsOption,
    StoreFolder,
    StudyOption,
    config_of,
    repository,
)

if TYPE_CHECKING:
    from internalize.control.drive import Driver
    from internalize.control.rerun import Preview, Selection
    from internalize.workflow import Plan

DryOption = Annotated[bool, typer.Option("--dry-run", "-n", help="say what would be done, change nothing")]
ProfileOption = Annotated[str, typer.Option("--profile", help="Snakemake profile: a name in profiles/, or a folder")]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", help="job-name prefix; default: slurm-jobname-prefix of profiles/slurm")
]
EXTRA = {"allow_extra_args": True, "ignore_unknown_options": False}


def rerun(
    context: typer.Context,
    arm: Annotated[str | None, typer.Option("--arm", help="arm to compute again")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="its seed; default: all")] = None,
    first: Annotated[int, typer.Option("--from", help="first step to compute again")] = 0,
    only: Annotated[
        bool, typer.Option("--only/--cascade", help="nothing but what is named / also what stands behind it")
    ] = False,
    stage: Annotated[str | None, typer.Option("--stage", help="all jobs of a stage, such as evals or rows")] = None,
    rows: Annotated[str | None, typer.Option("--rows", help="one row set")] = None,
    study: StudyOption = None,
    arms: ArmsOption = None,
    set: SetOption = None,
    steps_per_job: StepsOption = None,
    profile: ProfileOption = "local",
    store: StoreFolder = Path("store"),
    dry_run: DryOption = False,
) -> None:
    """Compute a part of the study again, however complete it is. Words behind -- go to Snakemake."""
    from internalize.control.rerun import Wish, perform, preview, select
    from internalize.store import Store

    plan, driver = _plan(study, arms, set, steps_per_job, profile, tuple(context.args))
    chosen = select(Wish(arm, seed, first, only, stage, rows), plan, Store(store))
    if dry_run:
        _print_preview(preview(chosen, plan, driver, Store(store)), chosen)
        return
    status = perform(chosen, driver, Store(store), lambda text: typer.echo(text, err=True))
    if status:
        raise typer.Exit(status)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(context_settings=EXTRA)(rerun)


def _plan(
    study: str | None,
    arms: str | None,
    set: list[str] | None,
    steps: int | None,
    profile: str,
    extra: tuple[str, ...] = (),
) -> tuple[Plan, Driver]:
    """The plan as Snakemake would make it under the profile, and the calls of Snakemake on it."""
    from internalize.control.drive import Driver, profile_config
    from internalize.workflow import Plan

    home = repository()
    config = {**profile_config(profile, home), **config_of(study, arms, set, steps)}
    return Plan.from_config(config, home), Driver(home, config, profile, extra)


def _print_preview(shown: Preview, chosen: Selection) -> None:
    from internalize.costs.table import size, span

    for line in shown.lines:
        steps = [part.step for part in line.parts if part.step >= 0]
        computed = "found in the store, if what it reads comes out the same"
        if steps:
            computed = f"computes step{'s' if len(steps) > 1 else ''} {_ranges(steps)}"
        elif line.parts:
            computed = "computed again"
        sources = " + ".join(sorted({part.source for part in line.parts}))
        price = f"{line.node_hours:.4g} node-hours, {span(line.seconds)} ({sources})" if line.parts else ""
        typer.echo(f"{line.label:<44} {computed}{'; ' + price if price else ''}")
    typer.echo(f"jobs: {len(shown.lines)}, node-hours: {shown.node_hours:.4g}", nl=False)
    typer.echo(f"; set aside until they are there again: {len(chosen.entries)} results, {size(shown.aside)}")
    if chosen.shared:
        typer.echo(f"shares results with: {' '.join(chosen.shared)}")


def _ranges(steps: list[int]) -> str:
    """`7-14`, or `0, 2-3`."""
    parts: list[list[int]] = []
    for step in sorted(steps):
        if parts and step == parts[-1][1] + 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    return ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in parts)
