"""A runtime over Ray: opened on the segment's cluster, which outlives the actors of a failed step.

Invariant: there is at most one cluster a process, connected when first needed and closed by `shutdown`.
"""

from __future__ import annotations

from pathlib import Path

from internalize.runtime import cluster
from internalize.runtime.engines import EnginePool
from internalize.runtime.group import TrainerGroup
from internalize.runtime.placement import layout
from internalize.runtime.rank import TrainerSettings
from internalize.runtime.runtimes import Spread
from internalize.runtime.sync import FromDisk, Served
from internalize.study_parallel import Parallel


def open_ray(
    parallel: Parallel, settings: TrainerSettings, base: Path, slots: int, max_len: int, scratch: Path
) -> Spread:
    """Ranks and engines as the arm's `parallel` says; see `runtimes.open_runtime`."""
    engines = parallel.engines or parallel.ranks
    cluster.shared(parallel.ranks + engines)
    import ray

    from internalize.runtime.ray_workers import RayWorkers

    plan = layout(parallel.ranks, engines, parallel.placement, gpus=ray.cluster_resources().get("GPU", 0.0) > 0)
    each = -(-slots // engines)
    workers = RayWorkers(plan, base, each, max_len)
    trainer = TrainerGroup(workers.ranks, settings)
    pool = EnginePool(workers.engines, each, max_len)
    served: list[Served] = list(pool.served())
    turns = pool if parallel.placement == "colocated" else None
    return Spread(trainer, pool, served, FromDisk(scratch / "weights", base), scratch, turns, workers.engines.spent)
