"""Where each rule runs: its Snakemake resources, from the site and the arm's parallel sizes.

Invariant: without a site every rule has no resources at all, and resources never enter a spec, so they rerun nothing.

Jobs come in four sizes: no GPU, one GPU, one whole node, several whole nodes. GPU rules carry the resource `mpi` (with
the value 0): without it Snakemake's job step would start the rule inside `srun -n1`, from where no other node can be
reached.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from internalize.cluster.site import Placement, Queue, RulePlacement, Site
from internalize.study_arms import Arm

PLACEMENTS: dict[str, Placement] = {
    "gate": "gpu",
    "numerics": "gpu",
    "harvest": "gpu",
    "evals": "gpu",
    "evals_base": "gpu",
    "segment": "arm",
}
"""Where rules run unless the site says otherwise; rules that are not named need no GPU."""
WITH_ARM = frozenset({"segment", "evals"})
"""Rules whose wildcards name an arm."""
BELL = "URG"
"""The signal before the end of a job's time. Slurm sends it to every process of every step, so it must be one that
programs ignore unless they ask for it."""

Resources = dict[str, Any]


class Placing:
    """The placement of a study's rules on a site.

    Args:
        site: the cluster; None on a machine without one.
        arms: the arms, by name.
    """

    def __init__(self, site: Site | None, arms: Mapping[str, Arm]) -> None:
        self.site = site
        self.arms = arms
        self._of_arm = lru_cache(maxsize=None)(self._of)

    def resources(self, rule: str) -> Resources:
        """Resources of a rule, for its `resources:`; those of rules with arms are functions of the wildcards."""
        if self.site is None:
            return {}
        if rule not in WITH_ARM:
            return self._of(rule, None)
        names = dict.fromkeys(name for arm in self.arms for name in self._of_arm(rule, arm))
        return {name: self._chosen(rule, name) for name in names}

    def _chosen(self, rule: str, name: str) -> Callable[[Any], Any]:
        return lambda wildcards: self._of_arm(rule, wildcards.arm).get(name)  # None: Snakemake leaves it out

    def _of(self, rule: str, arm: str | None) -> Resources:
        assert self.site is not None
        own = self.site.rules.get(rule, RulePlacement())
        placement = own.placement or PLACEMENTS.get(rule, "cpu")
        if placement == "cpu" and own.nodes is None:
            cpu = self.site.cpu
            sizes = {"cpus_per_task": cpu.cpus, "mem_mb": own.memory_mb or cpu.memory_mb}
            return self._queued(cpu, own, sizes, [])
        per_node = self.site.gpu.per_node
        asked = {"gpu": 1, "node": per_node, "cpu": per_node}.get(placement)
        if asked is None:
            asked = self.arms[arm].parallel.devices if arm is not None else 1
        nodes = own.nodes or -(-asked // per_node)
        gpus = per_node if own.nodes is not None or nodes > 1 else asked
        return self._on_gpus(own, nodes, gpus)

    def _on_gpus(self, own: RulePlacement, nodes: int, gpus: int) -> Resources:
        """`nodes` nodes with `gpus` GPUs each."""
        assert self.site is not None
        gpu = self.site.gpu
        sizes = {
            "mpi": 0,
            "nodes": nodes,
            "gres": f"gpu:{gpu.type}:{gpus}",
            "cpus_per_task": gpu.cpus_per_gpu * gpus,
            "mem_mb": own.memory_mb or gpu.memory_mb_per_gpu * gpus,
        }
        whole = ["--exclusive"] if gpus == gpu.per_node else []
        bell = f"--signal={BELL}@{self.site.signal_seconds}"
        return self._queued(gpu, own, sizes, ["--ntasks-per-node=1", *whole, "--open-mode=append", bell])

    def _queued(self, queue: Queue, own: RulePlacement, sizes: Resources, options: list[str]) -> Resources:
        assert self.site is not None
        reservation = [f"--reservation={self.site.reservation}"] if self.site.reservation else []
        named = {
            "slurm_partition": queue.partition,
            "slurm_account": self.site.paying,
            "qos": queue.qos,
            "constraint": queue.constraint,
            "slurm_extra": " ".join([*options, *reservation, *([queue.extra] if queue.extra else [])]),
        }
        return {**sizes, "runtime": own.minutes or queue.minutes} | {
            key: value for key, value in named.items() if value
        }

    def prefix(self) -> str:
        """What every job's shell does first: the site's set-up, and `internalize` becomes a call of the launcher.

        Braces are doubled, because Snakemake formats the text.
        """
        if self.site is None:
            return ""
        site = self.site
        words = ["command", "internalize", "launch", "--lease-seconds", str(site.lease_seconds)]
        for option, value in (
            ("--cpu-container", site.container.cpu),
            ("--gpu-container", site.container.gpu),
            ("--scratch", site.scratch),
            ("--interface", site.interface),
        ):
            words += [option, value] if value else []
        function = f'internalize() {{ {shlex.join(words)} -- internalize "$@"; }}'
        lines = ["set -e", *site.setup, "set -euo pipefail", function]  # module files read unset variables
        return "".join(f"{line}; " for line in lines).replace("{", "{{").replace("}", "}}")
