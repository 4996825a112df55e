"""A runtime over Ray: opened on the segment's cluster, which outlives the actors of a failed step.

Invariant: there is at most one cluster a process, connected when first needed and closed by `shutdown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from internalize.rollout.actor import dtype_of
from internalize.runtime import cluster
from internalize.runtime.engines import EnginePool
from internalize.runtime.group import TrainerGroup
from internalize.runtime.placement import layout
from internalize.runtime.rank import TrainerSettings
from internalize.runtime.runtimes import Spread
from internalize.runtime.sync import FromDisk, Served
from internalize.study_parallel import Parallel


def open_ray(
    parallel: Parallel,
    settings: TrainerSettings,
    base: Path,
    slots: int,
    max_len: int,
    scratch: Path,
    engine: Mapping[str, Any] | None = None,
) -> Spread:
    """Ranks and engines as the arm's `parallel` says; see `runtimes.open_runtime`."""
    engines = parallel.engines or parallel.ranks
    cluster.shared(parallel.ranks + engines)
    import ray

    from internalize.runtime.ray_workers import RayWorkers

    plan = layout(parallel.ranks, engines, parallel.placement, gpus=ray.cluster_resources().get("GPU", 0.0) > 0)
    each = -(-slots // engines)
    turns = parallel.placement == "colocated"
    settled = None if engine is None else {**engine, "takes_turns": turns}
    workers = RayWorkers(plan, base, each, max_len, settled)
    trainer = TrainerGroup(workers.ranks, settings)
    pool = EnginePool(workers.engines, each, max_len)
    served: list[Served] = list(pool.served())
    transport = (
        FromDisk(scratch / "weights", base)
        if engine is None
        else FromDisk(scratch / "weights", base, dtype_of(settings.model_config))
    )
    return Spread(trainer, pool, served, transport, scratch, pool if turns else None, workers.engines.spent)
