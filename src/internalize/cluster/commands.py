"""The commands for clusters: `launch` (called by rules), `doctor` and `sandbox`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FolderArgument = Annotated[Path, typer.Argument(help="folder of the sandbox")]
sandbox = typer.Typer(no_args_is_help=True, help="A real Slurm cluster of make-believe GH200 nodes on this machine.")


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command(context_settings={"allow_interspersed_args": False})(launch)
    app.command()(doctor)
    app.add_typer(sandbox, name="sandbox")


def launch(
    command: Annotated[list[str], typer.Argument(help="what to run, behind `--`")],
    runtime: Annotated[
        str, typer.Option(help="none, ray, torchrun, or auto: what the command's --spec names")
    ] = "auto",
    cpu_container: Annotated[str, typer.Option(help="command line in front of what runs without GPUs")] = "",
    gpu_container: Annotated[str, typer.Option(help="the same for jobs with GPUs")] = "",
    scratch: Annotated[str, typer.Option(help="folder for temporary files on each node")] = "/tmp",
    interface: Annotated[str, typer.Option(help="network interface between nodes")] = "",
    lease_seconds: Annotated[int | None, typer.Option(help="how long to wait for another writer")] = None,
    patience: Annotated[float, typer.Option(help="seconds within which all nodes must be up")] = 300.0,
) -> None:
    """Run a rule's command in the Slurm job around it: on all its nodes, stopping in time (called by the rules)."""
    from internalize.cluster.launch import Launch
    from internalize.cluster.launch import launch as run

    runtimes = ("auto", "none", "ray", "torchrun")
    if runtime not in runtimes:
        raise typer.BadParameter(f"one of {', '.join(runtimes)}", param_hint="--runtime")
    how = Launch(runtime, cpu_container, gpu_container, scratch, interface, lease_seconds, patience)  # type: ignore[arg-type]
    raise typer.Exit(run(command, how, lambda text: typer.echo(f"launch: {text}", err=True)))


def doctor(
    site: Annotated[Path, typer.Option(help="site file")] = Path("profiles/slurm/site.yaml"),
    study: Annotated[Path, typer.Option(help="study file")] = Path("config/bundled.yaml"),
    profile: Annotated[str, typer.Option(help="Snakemake profile: a name in profiles/, or a folder")] = "slurm",
    directory: Annotated[Path, typer.Option(help="where the study will run")] = Path(),
    status_command: Annotated[
        str | None, typer.Option(help="if snakemake is called with another than the profile's")
    ] = None,
    jobs: Annotated[bool, typer.Option(help="run two small jobs on compute nodes")] = True,
    patience: Annotated[float, typer.Option(help="seconds to wait for each of them")] = 600.0,
) -> None:
    """Check that a Slurm site offers what a study needs; each line says OK, or what to do."""
    from internalize.cluster.doctor import Patient, examine
    from internalize.cluster.profile import find_profile, read_profile
    from internalize.cluster.site import read_site
    from internalize.study import load_study

    entries = read_profile(find_profile(profile, Path())) | (
        {"slurm-status-command": status_command} if status_command else {}
    )
    patient = Patient(read_site(site), load_study(study).plain(), entries, directory.resolve(), jobs, patience)
    wrong = 0
    for finding in examine(patient):
        wrong += not finding.ok
        typer.echo(f"{'OK ' if finding.ok else 'NO '} {finding.check:<18} {finding.said}")
        if finding.fix:
            typer.echo(f"    {'':<18} -> {finding.fix}")
    typer.echo(f"{wrong} to mend" if wrong else f"site `{patient.site.name}` is ready")
    raise typer.Exit(1 if wrong else 0)


@sandbox.command()
def start(
    folder: FolderArgument = Path(".slurm-sandbox"), nodes: Annotated[int, typer.Option(help="how many")] = 4
) -> None:
    """Start it; prints how to use it."""
    from internalize.cluster.sandbox import Sandbox
    from internalize.cluster.sandbox_conf import Shape

    box = Sandbox(folder, Shape(nodes=nodes))
    box.start()
    typer.echo(f"export PATH={box.bin}:$PATH   # sinfo, squeue, sbatch, ... of the sandbox")
    typer.echo(f"snakemake --profile slurm --configfile {box.site} --slurm-status-command squeue")


@sandbox.command()
def stop(folder: FolderArgument = Path(".slurm-sandbox")) -> None:
    """End it and every process of its jobs."""
    from internalize.cluster.sandbox import Sandbox

    Sandbox(folder).stop()


@sandbox.command()
def kill_node(
    node: str,
    folder: FolderArgument = Path(".slurm-sandbox"),
    cut_off: Annotated[
        bool, typer.Option("--cut-off", help="the node is only cut off: what runs there runs on")
    ] = False,
) -> None:
    """Let a node die, to see what happens."""
    from internalize.cluster.sandbox import Sandbox

    Sandbox(folder).kill_node(node, processes=not cut_off)


@sandbox.command()
def start_node(node: str, folder: FolderArgument = Path(".slurm-sandbox")) -> None:
    """Start a dead node again."""
    from internalize.cluster.sandbox import Sandbox

    Sandbox(folder).start_node(node)
