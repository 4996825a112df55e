"""A cluster as this workflow sees it: where CPU and GPU jobs go, what they ask for, what a job sets up first.

Invariant: nothing here can change a result; no spec, key or receipt knows of the site.

The settings stand under the key `site` of `profiles/slurm/site.yaml`, which the Slurm profile hands to Snakemake as a
config file; `profiles/README.md` explains them with examples. Without that key (a laptop) no rule has resources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, ValidationError

from internalize.errors import UserError
from internalize.study_errors import nearest
from internalize.study_model import Count, Settings

KEY = "site"
ACCOUNT_VARIABLES = ("SBATCH_ACCOUNT", "SLURM_ACCOUNT")
Placement = Literal["cpu", "gpu", "node", "arm"]


def _extra(text: str) -> str:
    """Options that the executor sets itself are refused by it, so they are refused here, before the first job."""
    own = ("--account", "--partition", "--qos", "--constraint", "--time", "--mem", "--nodes", "--gres", "--ntasks=")
    for option in own:
        if option in text:
            raise ValueError(f"`{option}` has its own key in the site file or is set by the workflow")
    return text


Extra = Annotated[str, AfterValidator(_extra)]


class Queue(Settings):
    """Where a kind of job is queued."""

    partition: str | None = None
    """Partition; null: the cluster's default."""
    qos: str | None = None
    """Quality of service; null: the account's default."""
    constraint: str | None = None
    """Node features that are asked for."""
    minutes: Count = 60
    """Time limit of a job."""
    extra: Extra = ""
    """More options for sbatch, as typed, such as `--network=single_node_vni`."""


class CpuQueue(Queue):
    """Jobs without a GPU."""

    cpus: Count = 2
    """CPUs of a job."""
    memory_mb: Count = 8000
    """Memory of a job, MB."""


class GpuQueue(Queue):
    """Jobs on GPUs."""

    minutes: Count = 720
    """Time limit of a job. Training stops at a committed step before it and goes on in the same job, requeued."""
    type: str = "gh200"
    """Type of the GPUs, as `sinfo -o %G` shows it."""
    per_node: Count = 4
    """GPUs of a node."""
    cpus_per_gpu: Count = 72
    """CPUs that a job gets with each GPU."""
    memory_mb_per_gpu: Count = 110_000
    """Memory (host) that a job gets with each GPU, MB."""


class RulePlacement(Settings):
    """What one rule does differently."""

    placement: Placement | None = None
    """`cpu`: no GPU. `gpu`: one. `node`: all of one node. `arm`: what the arm's `parallel` asks for."""
    nodes: Count | None = None
    """Whole nodes, whatever the placement says."""
    minutes: Count | None = None
    """Time limit."""
    memory_mb: Count | None = None
    """Memory of a CPU job, or of each node of a GPU job, MB."""


class Containers(Settings):
    """Command lines that stand in front of what runs in a container; empty: no container."""

    cpu: str = ""
    """For CPU rules."""
    gpu: str = ""
    """For GPU rules, such as `apptainer exec --nv --bind /scratch train.sif`."""


class Site(Settings):
    """One cluster."""

    name: str = "unnamed"
    """For messages."""
    account: str | None = None
    """Account that pays; null: $SBATCH_ACCOUNT, so that it stays out of files."""
    reservation: str | None = None
    """Reservation to run in."""
    cpu: CpuQueue = CpuQueue()
    """CPU jobs."""
    gpu: GpuQueue = GpuQueue()
    """GPU jobs."""
    rules: dict[str, RulePlacement] = {}
    """Rules that are placed differently, by name."""
    signal_seconds: Annotated[int, Field(ge=60)] = 600
    """Training is told this long before its time limit to stop after the current step."""
    lease_seconds: Annotated[int, Field(ge=1)] = 900
    """A job waits this long for another that still writes what it wants to write, such as one left of a killed run."""
    setup: list[str] = []
    """Shell lines before each job's command: `module load ...`, `source .../bin/activate`."""
    container: Containers = Containers()
    """Containers of jobs."""
    scratch: str | None = None
    """Folder for temporary files, best on the node's own disk; null: /tmp. `$USER` and the like are expanded there."""
    interface: str | None = None
    """Network interface between nodes, such as `hsn0`; null: what the node's address in Slurm belongs to."""
    free_gb: Annotated[int, Field(ge=0)] = 50
    """`internalize doctor` wants this much free space where the study runs, GB."""

    @property
    def paying(self) -> str | None:
        """The account, from the file or the environment; None leaves it to Slurm."""
        named = (value for name in ACCOUNT_VARIABLES if (value := os.environ.get(name)))
        return self.account or next(named, None)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Site | None:
        """The site of a Snakemake config; None when it names none.

        Raises:
            UserError: a key is unknown or a value cannot be used.
        """
        settings = config.get(KEY)
        if settings is None:
            return None
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise _site_error(error) from None


def read_site(path: Path) -> Site:
    """The site of a site file.

    Raises:
        UserError: the file is missing, no YAML, or not a site.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UserError("no such site file", where=str(path), fix="see profiles/slurm/sites") from None
    except yaml.YAMLError as error:
        raise UserError("the site file is not valid YAML", where=str(path), got=" ".join(str(error).split())) from None
    site = Site.from_config(content if isinstance(content, dict) else {})
    if site is None:
        raise UserError(f"the site file has no key `{KEY}`", where=str(path), expected=f"{KEY}: {{name: ...}}")
    return site


def _site_error(error: ValidationError) -> UserError:
    detail = error.errors(include_url=False)[0]
    keys = [str(part) for part in detail["loc"]]
    where = ".".join([f"site file: {KEY}", *keys])
    if detail["type"] == "extra_forbidden":
        known = _keys_at(keys[:-1])
        expected = f"one of: {', '.join(known)}" if known else ""
        return UserError(f"unknown key `{keys[-1]}`", where=where, expected=expected, fix=nearest(keys[-1], known))
    said = detail["msg"].removeprefix("Value error, ")
    return UserError("a value of the site cannot be used", where=where, expected=said, got=repr(detail["input"])[:80])


def _keys_at(keys: list[str]) -> list[str]:
    """The keys that the model has at a path."""
    model: Any = Site
    for position, key in enumerate(keys):
        if keys[:position] == ["rules"]:
            model = RulePlacement
        elif key != "rules":
            model = model.model_fields[key].annotation
    return list(model.model_fields)
