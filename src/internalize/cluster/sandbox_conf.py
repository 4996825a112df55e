"""Configuration files of a Slurm sandbox: a real cluster of make-believe GH200 nodes inside one folder.

Invariant: nothing outside the folder is named but the host and four character devices that every Linux has, so the
sandbox needs no root, no systemd, no cgroups and no GPU, and two of them never meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
"""Stand in for GPUs: Slurm wants character devices that exist, and hands out CUDA_VISIBLE_DEVICES for them."""
CLIENTS = ("sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sshare")


SACCT = """#!/bin/sh
# There is no accounting database here. When the controller is slow to answer, Snakemake asks sacct for the state of its
# jobs instead of squeue, and loses sight of them when that fails; so the controller answers this one question.
while [ $# -gt 0 ] && [ "$1" != --name ]; do shift; done
[ $# -gt 1 ] || exit 1
exec {bin}/squeue --noheader --states=all --name "$2" --format="%i|%T"
"""


@dataclass(frozen=True)
class Shape:
    """What each node says it has."""

    nodes: int = 4
    cpus: int = 288
    memory_mb: int = 470_000

    @property
    def names(self) -> list[str]:
        """Node names."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]


@dataclass(frozen=True)
class Ports:
    """TCP ports on the loopback address."""

    controller: int
    nodes: list[int]


def slurm_conf(folder: Path, shape: Shape, ports: Ports, user: str, host: str) -> str:
    """The text of slurm.conf.

    Times are short where the real ones would make tests wait: a requeued job may start again after `cred_expire`, a
    dead node is noticed after `SlurmdTimeout`. Finished jobs stay visible to squeue for an hour, because there is no
    accounting database to ask.
    """
    nodes = "\n".join(
        f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs={shape.cpus} Boards=1"
        f" SocketsPerBoard=4 CoresPerSocket={shape.cpus // 4} ThreadsPerCore=1 RealMemory={shape.memory_mb}"
        f" Gres=gpu:gh200:{len(DEVICES)} Feature=gh200 State=UNKNOWN"
        for name, port in zip(shape.names, ports.nodes, strict=True)
    )
    partition = "Nodes=ALL MaxTime=1-00:00:00 DefMemPerCPU=100 State=UP"
    return f"""ClusterName=sandbox
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports.controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.own
SlurmdPidFile={folder}/run/%n.own
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=10
MinJobAge=3600
KillWait=8
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=cpu {partition} PriorityTier=1 PreemptMode=REQUEUE
PartitionName=gpu {partition} PriorityTier=1 PreemptMode=REQUEUE Default=YES
PartitionName=urgent {partition} PriorityTier=10 PreemptMode=OFF
"""


def gres_conf(shape: Shape) -> str:
    """The text of gres.conf."""
    nodes = f"node[1-{shape.nodes}]"
    lines = [f"NodeName={nodes} Name=gpu Type=gh200 File={device}" for device in DEVICES]
    return "\n".join(["AutoDetect=off", *lines, ""])


def site_yaml(shape: Shape) -> str:
    """The site file of the sandbox, for `snakemake --profile slurm --configfile FOLDER/site.yaml`."""
    site = {
        "name": "sandbox",
        "free_gb": 1,
        "cpu": {"partition": "cpu", "cpus": 2, "memory_mb": 4000, "minutes": 30},
        "gpu": {
            "partition": "gpu",
            "type": "gh200",
            "per_node": len(DEVICES),
            "cpus_per_gpu": shape.cpus // len(DEVICES),
            "memory_mb_per_gpu": 100_000,
            "minutes": 60,
        },
    }
    return "# The Slurm sandbox as a site: see profiles/README.md.\n" + yaml.safe_dump({"site": site}, sort_keys=False)
