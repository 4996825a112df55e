"""Small driver programs that the launch tests run inside jobs: `python drivers.py NAME ...`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def ray_over_nodes(out: str) -> None:
    """One task a node on all its GPUs; writes which GPUs each saw."""
    import ray

    ray.init(log_to_driver=False)

    @ray.remote(num_gpus=4)
    def where() -> tuple[str, list[str]]:
        time.sleep(1)  # else one node runs them all
        return os.environ["SLURMD_NODENAME"], [os.environ["INSIDE"], *sorted(map(str, ray.get_gpu_ids()))]

    seen = dict(ray.get([where.remote() for _ in range(4)]))
    Path(out).write_text(json.dumps({"nodes": sum(node["Alive"] for node in ray.nodes()), "seen": seen}))
    ray.shutdown()


def stubborn(out: str) -> None:
    """Ignores SIGTERM and has a child that does too; writes both pids."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child:
        Path(out).write_text(f"{os.getpid()} {child}")
    time.sleep(300)


def ranks(out: str) -> None:
    """One rank of a torchrun job: adds up the rank numbers."""
    import torch.distributed as dist
    from torch import tensor

    dist.init_process_group("gloo")
    total = tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        Path(out).write_text(f"{dist.get_world_size()} {total.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
