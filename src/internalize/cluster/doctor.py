"""`internalize doctor`: does this site offer what the study needs, before the first job is submitted?

Invariant: a check says OK only for what it has seen work; what is wrong comes with what to do.
"""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from internalize.cluster import slurm_facts
from internalize.cluster.finding import Finding
from internalize.cluster.probes import probe_nodes
from internalize.cluster.site import Site
from internalize.errors import UserError

PLUGIN = "snakemake-executor-plugin-slurm"
OLDEST_SLURM = (21, 8)
HUB = "https://huggingface.co"
FIRST_CHECK = 40
"""Seconds before the executor's first look at a job, when the profile does not say."""


@dataclass(frozen=True)
class Patient:
    """What is examined.

    Args:
        site: the site.
        study: the study as plain values; empty when none is named.
        profile: the entries of the profile's `config.yaml`.
        folder: where the study runs: `results` and `store` lie there.
        jobs: False: nothing is run on compute nodes.
        patience: seconds within which a small job must have started and ended.
    """

    site: Site
    study: Mapping[str, Any]
    profile: Mapping[str, Any]
    folder: Path
    jobs: bool = True
    patience: float = 600.0


def examine(patient: Patient) -> Iterator[Finding]:
    """The findings, as they come."""
    yield _plugin()
    reachable = _slurm()
    yield reachable
    if reachable.ok:
        yield _status_command(patient)
        yield from _queues(patient)
        yield _account(patient)
        if patient.jobs:
            yield from probe_nodes(patient.site, patient.folder, patient.patience)
    yield _disk(patient)
    yield from _clis(patient)
    yield _hub(patient)


def _plugin() -> Finding:
    try:
        return Finding("executor", True, f"{PLUGIN} {metadata.version(PLUGIN)}")
    except metadata.PackageNotFoundError:
        return Finding("executor", False, f"{PLUGIN} is not installed", "pip install 'internalize[cluster]'")


def _slurm() -> Finding:
    try:
        version = slurm_facts.version()
        down = slurm_facts.controllers_down()
    except UserError as error:
        return Finding("slurm", False, f"{error.what} {error.got}".strip(), "log in where `sinfo` works")
    if version < OLDEST_SLURM:
        return Finding(
            "slurm", False, f"version {_dotted(version)}", f"{_dotted(OLDEST_SLURM)} is the oldest that works"
        )
    if down:
        return Finding("slurm", False, f"the controller is down: {down}", "wait for it, or ask the site")
    return Finding("slurm", True, f"version {_dotted(version)}, the controller answers")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(f"{part:02d}" for part in version)


def _status_command(patient: Patient) -> Finding:
    """How Snakemake asks for the state of jobs: by sacct where accounting runs, else by squeue."""
    asked = patient.profile.get("slurm-status-command") or ("sacct" if shutil.which("sacct") else "squeue")
    wait = int(patient.profile.get("slurm-init-seconds-before-status-checks") or FIRST_CHECK)
    config = slurm_facts.configuration()
    accounting = not config.get("AccountingStorageType", "").endswith("/none")
    age = int(config.get("MinJobAge", "0").split()[0])
    if asked == "sacct" and not accounting:
        fix = "snakemake ... --slurm-status-command squeue, or add it to the profile (else Snakemake waits for ever)"
        return Finding("status command", False, "sacct, but there is no accounting database", fix)
    if asked == "squeue" and age < 3 * wait:
        fix = (
            "use sacct" if accounting else f"slurm-init-seconds-before-status-checks: {max(1, age // 3)} in the profile"
        )
        return Finding("status command", False, f"squeue forgets jobs after {age} s", fix)
    return Finding("status command", True, f"{asked} (squeue remembers jobs for {age} s)")


def _queues(patient: Patient) -> Iterator[Finding]:
    site = patient.site
    known = slurm_facts.partitions()
    for role, queue in (("cpu", site.cpu), ("gpu", site.gpu)):
        check = f"partition ({role})"
        name = queue.partition or next((one.name for one in known.values() if one.default), None)
        found = known.get(name or "")
        minutes = max([queue.minutes, *(rule.minutes or 0 for rule in site.rules.values() if role == "gpu")])
        if found is None:
            said = f"there is no partition `{name}`" if name else "the cluster has no default partition"
            yield Finding(check, False, said, f"site.{role}.partition: one of {', '.join(known)}")
            continue
        if not found.up:
            yield Finding(check, False, f"`{name}` is {found.state}", "choose another or wait")
        elif found.minutes is not None and minutes > found.minutes:
            fix = f"site.{role}.minutes: {found.minutes}"
            yield Finding(check, False, f"`{name}` allows {found.minutes} minutes, {minutes} are asked for", fix)
        else:
            yield Finding(check, True, f"`{name}` is up, {minutes} minutes are allowed")
        if role == "gpu":
            yield _gres(site, name or "")


def _gres(site: Site, partition: str) -> Finding:
    """Enough whole nodes of the kind that jobs ask for."""
    gpu = site.gpu
    nodes = slurm_facts.nodes(partition)
    fitting = [node for node in nodes if node.gpus.get(gpu.type, 0) >= gpu.per_node]
    if not fitting:
        seen = sorted({f"{kind}:{count}" for node in nodes for kind, count in node.gpus.items()}) or ["none"]
        fix = f"site.gpu.type and per_node; what the nodes have: {', '.join(seen)}"
        return Finding("gpus", False, f"no node of `{partition}` has {gpu.per_node} x {gpu.type}", fix)
    cpus, memory = gpu.cpus_per_gpu * gpu.per_node, gpu.memory_mb_per_gpu * gpu.per_node
    large = [node for node in fitting if node.cpus >= cpus and node.memory_mb >= memory]
    if not large:
        most = max(fitting, key=lambda node: (node.cpus, node.memory_mb))
        said = f"no node has {cpus} CPUs and {memory} MB; the largest has {most.cpus} and {most.memory_mb}"
        fix = f"site.gpu.cpus_per_gpu: {most.cpus // gpu.per_node}, memory_mb_per_gpu: {most.memory_mb // gpu.per_node}"
        return Finding("gpus", False, said, fix)
    return Finding("gpus", True, f"{len(large)} nodes with {gpu.per_node} x {gpu.type}")


def _account(patient: Patient) -> Finding:
    account = patient.site.paying
    enforced = "associations" in slurm_facts.configuration().get("AccountingStorageEnforce", "")
    if account is None and enforced:
        known = ", ".join(slurm_facts.accounts()) or "ask the site"
        return Finding("account", False, "the cluster wants an account", f"export SBATCH_ACCOUNT=... ({known})")
    if account is not None and enforced and account not in slurm_facts.accounts():
        known = ", ".join(slurm_facts.accounts()) or "none"
        return Finding("account", False, f"`{account}` is not yours", f"yours: {known}")
    return Finding("account", True, account or "none, and none is needed")


def _disk(patient: Patient) -> Finding:
    """Free space and files where the study runs; on Lustre the user's quota too."""
    needed = patient.site.free_gb
    space = os.statvfs(patient.folder)
    free = space.f_bavail * space.f_frsize / 1e9
    quota = slurm_facts.lustre_quota_gb(patient.folder)
    left = min(free, quota) if quota is not None else free
    what = "quota" if quota is not None and quota < free else "file system"
    if left < needed:
        fix = "free space, run elsewhere (snakemake --directory ...), or set `retention` in the study"
        return Finding("disk", False, f"{left:.0f} GB free ({what}), {needed} wanted in {patient.folder}", fix)
    if space.f_files and space.f_favail < 100_000:
        return Finding("disk", False, f"only {space.f_favail} more files fit", "delete files or run elsewhere")
    return Finding("disk", True, f"{left:.0f} GB free ({what}), {needed} wanted")


def named_types(value: Any, key: str) -> set[str]:
    """Every `type` that stands under a key of this name, anywhere in a study."""
    if isinstance(value, Mapping):
        found = {str(value[key]["type"])} if isinstance(value.get(key), Mapping) and "type" in value[key] else set()
        return found.union(*(named_types(one, key) for one in value.values()))
    if isinstance(value, list):
        return set().union(*(named_types(one, key) for one in value))
    return set()


def _clis(patient: Patient) -> Iterator[Finding]:
    """The agent CLIs that the study plays with, at the versions that are known."""
    from internalize.harness.claude_code import ClaudeCode
    from internalize.harness.installs import pinned
    from internalize.harness.qwen_code import QwenCode

    agents = {agent.name: agent for agent in (ClaudeCode(), QwenCode())}
    used = sorted(named_types(patient.study, "harness") & set(agents))
    for name in used:
        agent = agents[name]
        try:
            pinned(name, agent.find(), agent.version)
            yield Finding("agent CLI", True, f"{name} {agent.version}")
        except UserError as error:
            yield Finding("agent CLI", False, f"{error.what}: {error.got}", error.fix)
    if not used:
        yield Finding("agent CLI", True, "the study uses none")


def _hub(patient: Patient) -> Finding:
    """The model hub answers from here (compute nodes need no network: bases are fetched by a CPU rule)."""
    base = patient.study.get("base")
    if not (isinstance(base, Mapping) and base.get("type") == "hub"):
        return Finding("hub", True, "the study fetches nothing")
    endpoint = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    address = f"{endpoint}/api/models/{base['repo']}"
    request = urllib.request.Request(address)
    token = os.environ.get("HF_TOKEN")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=20):
            return Finding("hub", True, f"{endpoint} knows {base['repo']}")
    except urllib.error.HTTPError as error:
        fix = "export HF_TOKEN=... of an account that may read it" if error.code in (401, 403) else "check base.repo"
        return Finding("hub", False, f"{address} answers {error.code}", fix)
    except (OSError, ValueError) as error:
        fix = "run this where the network reaches it, set HF_ENDPOINT to a mirror, or HTTPS_PROXY"
        return Finding("hub", False, f"{endpoint} cannot be reached: {getattr(error, 'reason', error)}", fix)
