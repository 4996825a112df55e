"""`internalize rerun`, `cancel`, `unlock`: steering a study that runs or has run.

Invariant: each has `--dry-run`, which changes nothing; each touches only processes and Slurm jobs of this user that
belong to this working directory.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from internalize.cli_common import say
from internalize.cli_plan import (
    ArmsOption,
    SetOption,
    StepsOption,
    StoreFolder,
    StudyOption,
    config_of,
    repository,
)
from internalize.errors import UserError

if TYPE_CHECKING:
    from internalize.control.drive import Driver
    from internalize.control.preview import Preview
    from internalize.control.selection import Selection
    from internalize.workflow import Plan

DryOption = Annotated[bool, typer.Option("--dry-run", "-n", help="say what would be done, change nothing")]
ProfileOption = Annotated[str, typer.Option("--profile", help="Snakemake profile: a name in profiles/, or a folder")]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", help="job-name prefix; default: slurm-jobname-prefix of profiles/slurm")
]
SlurmOption = Annotated[bool, typer.Option("--slurm/--no-slurm", help="look into the Slurm queue")]
EXTRA = {"allow_extra_args": True, "ignore_unknown_options": False}


def rerun(
    context: typer.Context,
    arm: Annotated[str | None, typer.Option("--arm", help="arm to compute again")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="its seed; default: all")] = None,
    first: Annotated[int | None, typer.Option("--from", help="first step to compute again; default: its first")] = None,
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
    from internalize.control.preview import preview
    from internalize.control.rerun import perform
    from internalize.control.selection import Wish, select
    from internalize.store import Store

    plan, driver = plan_and_driver(study, arms, set, steps_per_job, profile, tuple(context.args))
    chosen = select(
        Wish(arm, seed, first if first is not None else _first(plan, arm), only, stage, rows), plan, Store(store)
    )
    if dry_run:
        _print_preview(preview(chosen, plan, driver, Store(store)), chosen)
        return
    status = perform(chosen, driver, Store(store), say)
    if status:
        raise typer.Exit(status)


def cancel(
    arm: Annotated[str | None, typer.Option("--arm", help="end the jobs of one arm; default: everything")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="and of one seed")] = None,
    prefix: PrefixOption = None,
    wait: Annotated[float, typer.Option("--wait", help="seconds to wait for the end", min=0)] = 60.0,
    use_slurm: SlurmOption = True,
    dry_run: DryOption = False,
) -> None:
    """End Snakemake and its jobs, here and in Slurm. What is committed stays; the next run goes on behind it."""
    from internalize.control import stop

    if seed is not None and arm is None:
        raise UserError("a seed of which arm?", where="--seed", got=str(seed), expected="--arm beside it")
    chosen_prefix = prefix or _slurm_prefix()
    now = stop.chosen(stop.live(Path(), chosen_prefix, use_slurm), (arm, seed))
    if not now:
        typer.echo("nothing of this study runs" if arm is None else "nothing of this arm runs")
        return
    if dry_run:
        for line in now.lines():
            typer.echo(f"would end: {line}")
        return
    left = stop.cancel(Path(), chosen_prefix, (arm, seed), wait, use_slurm, typer.echo)
    if left:
        raise UserError("some jobs have not ended yet", got="; ".join(left.lines()), fix="wait, then call this again")


def unlock(
    study: StudyOption = None,
    arms: ArmsOption = None,
    set: SetOption = None,
    steps_per_job: StepsOption = None,
    profile: ProfileOption = "local",
    prefix: PrefixOption = None,
    wait: Annotated[float, typer.Option("--wait", help="seconds to wait for jobs of a killed run", min=0)] = 600.0,
    end_jobs: Annotated[bool, typer.Option("--cancel", help="end such jobs instead of waiting")] = False,
    use_slurm: SlurmOption = True,
    dry_run: DryOption = False,
) -> None:
    """Free the directory after a killed run, once none of its jobs runs any more."""
    from internalize.control import stop
    from internalize.control.drive import Driver

    home = repository()
    driver = Driver(home, config_of(study, arms, set, steps_per_job), profile)
    chosen_prefix = prefix or prefix_of(driver)
    if dry_run:
        now = stop.live(Path(), chosen_prefix, use_slurm)
        for line in now.lines():
            typer.echo(f"{'would end' if end_jobs and not now.drivers else 'runs'}: {line}")
        locks = len(stop.locked(Path()))
        after = "" if not now else ": Snakemake runs" if now.drivers else " after these jobs have ended"
        typer.echo(
            f"would {'not unlock' if now.drivers else 'unlock'}{after} ({locks} locks)" if locks else "not locked"
        )
        return
    stop.unlock(Path(), chosen_prefix, driver, wait, end_jobs, use_slurm, typer.echo)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(context_settings=EXTRA)(rerun)
    app.command()(cancel)
    app.command()(unlock)


def prefix_of(driver: Driver) -> str | None:
    """`slurm-jobname-prefix` of the profile, or of profiles/slurm."""
    for one in (driver, replace(driver, profile="slurm")):
        found = one.settings().get("slurm-jobname-prefix")
        if found:
            return str(found)
    return None


def _slurm_prefix() -> str | None:
    from internalize.control.drive import Driver

    try:
        return prefix_of(Driver(repository(), {}, "slurm"))
    except UserError:
        return None


def plan_and_driver(
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

    driver = Driver(repository(), {}, profile, extra)
    config = {**profile_config(driver.settings()), **config_of(study, arms, set, steps)}
    return Plan.from_config(config, driver.repository), replace(driver, config=config)


def _first(plan: Plan, arm: str | None) -> int:
    from internalize.schedule import own_steps

    return own_steps(plan.arms[arm]).start if arm in plan.arms else 0


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
