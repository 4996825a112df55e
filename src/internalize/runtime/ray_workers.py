"""Ranks and engines as Ray actors on the devices of a cluster.

Invariant: an actor that dies is never restarted behind the driver's back: its loss ends the step, and the step is tried
again with new actors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from internalize.errors import UserError
from internalize.runtime.answers import GRACE_SECONDS, Failed, Gone, results
from internalize.runtime.engine_actor import EngineActor
from internalize.runtime.failures import WorkerLost
from internalize.runtime.placement import Layout
from internalize.runtime.rank_actor import RankActor

PLACE_SECONDS = 120.0


class RayWorkers:
    """The actors of one segment on their devices; `ranks` and `engines` speak to them.

    Args:
        layout: devices, and what goes where.
        model: model folder that the engines take their configuration from.
        slots: calls at once of one engine.
        max_len: most tokens of a sequence.
        engine: the study's `engine`; None: ours.

    Raises:
        WorkerLost: the cluster has no room, or an actor did not come up.
    """

    def __init__(
        self, layout: Layout, model: Path, slots: int, max_len: int, engine: Mapping[str, Any] | None = None
    ) -> None:
        self._actors: list[Any] = []
        self._group = placement_group(layout.bundles, strategy="PACK")
        try:
            self._wait_for_room(layout)
            table = placement_group_table(self._group)["bundles_to_node_id"]
            on_rank, on_engine = layout.assign([table[i] for i in range(len(layout.bundles))])
            ranks = [self._start(RankActor, layout.rank, bundle) for bundle in on_rank]
            settings = (model.resolve(), slots, max_len, engine)
            engines = [self._start(EngineActor, layout.engine, bundle, *settings) for bundle in on_engine]
            self.ranks = RayRanks({f"rank {i}": actor for i, actor in enumerate(ranks)}, self)
            self.engines = RayHosts({f"engine {i}": actor for i, actor in enumerate(engines)})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all actors and gives the devices back; idempotent."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _wait_for_room(self, layout: Layout) -> None:
        try:
            ray.get(self._group.ready(), timeout=PLACE_SECONDS)
        except GetTimeoutError as error:
            wanted = {key: sum(b.get(key, 0.0) for b in layout.bundles) for key in ("CPU", "GPU")}
            raise WorkerLost(
                "the cluster has no room for the ranks and engines",
                expected=f"{wanted['GPU']:.0f} GPUs and {wanted['CPU']:.0f} CPUs",
                got=", ".join(
                    f"{key} {value:.0f}" for key, value in sorted(ray.available_resources().items()) if key in wanted
                ),
                fix="ask for more nodes, or smaller `parallel` sizes",
            ) from error

    def _start(self, kind: type[Any], resources: Mapping[str, float], bundle: int, *arguments: Any) -> Any:
        actor = (
            ray.remote(kind)
            .options(
                num_cpus=resources.get("CPU", 1.0),
                num_gpus=resources.get("GPU", 0.0),
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle),
            )
            .remote(*arguments)
        )
        self._actors.append(actor)
        return actor


class RayRanks:
    """`group.Ranks` over actors."""

    def __init__(self, actors: Mapping[str, Any], workers: RayWorkers) -> None:
        self._actors, self._workers = dict(actors), workers
        host, port = gather({"rank 0": self._actors["rank 0"].open_store.remote()}, "open_store")[0]
        joined = {
            name: actor.meet.remote(host, port, rank, len(self._actors))
            for rank, (name, actor) in enumerate(self._actors.items())
        }
        self.processes: dict[str, int] = dict(zip(joined, gather(joined, "meet"), strict=True))

    def call(self, name: str, *arguments: Any) -> list[tuple[Any, float]]:
        """See `group.Ranks`."""
        packed = [ray.put(argument) for argument in arguments]  # once, however many ranks read it
        return gather({rank: actor.call.remote(name, *packed) for rank, actor in self._actors.items()}, name)

    def close(self) -> None:
        """See `group.Ranks`."""
        self._workers.close()


class RayHosts:
    """`engines.Hosts` over actors."""

    def __init__(self, actors: Mapping[str, Any]) -> None:
        self._actors = dict(actors)
        places = gather({name: actor.where.remote() for name, actor in self._actors.items()}, "start")
        self.names = [f"{name} on {host}" for name, (host, _) in zip(self._actors, places, strict=True)]
        self.processes: dict[str, int] = {name: pid for name, (_, pid) in zip(self._actors, places, strict=True)}
        self.cpu_seconds = 0.0

    def spent(self) -> float:
        """CPU seconds of the engines since this was last asked."""
        seconds, self.cpu_seconds = self.cpu_seconds, 0.0
        return seconds

    def ask(self, name: str, arguments: dict[int, tuple[Any, ...]]) -> list[Any]:
        """See `engines.Hosts`."""
        actors = list(self._actors.values())
        calls = {self.names[i]: actors[i].call.remote(name, *given) for i, given in arguments.items()}
        answers = gather(calls, name)
        self.cpu_seconds += sum(seconds for _, seconds in answers)
        return [result for result, _ in answers]


def gather(calls: Mapping[str, Any], asked: str) -> list[Any]:
    """The answers of all calls; see `answers.results` for what it raises."""
    answers: dict[str, Any] = dict.fromkeys(calls)
    waiting = {reference: name for name, reference in calls.items()}
    deadline: float | None = None
    while waiting and not any(isinstance(answer, Gone) for answer in answers.values()):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=left)
        if not ready:
            break
        for reference in ready:
            answer = answers[waiting.pop(reference)] = _outcome(reference)
            if isinstance(answer, Failed | UserError) and deadline is None:
                deadline = time.monotonic() + GRACE_SECONDS
    return results(answers, asked)


def _outcome(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        return cause if isinstance(cause, UserError) else Failed(str(error))
    except RayActorError as error:
        return Gone(_cause(str(error)))
    except RayError as error:
        return Gone(f"{type(error).__name__}: {_cause(str(error))}")


def _cause(text: str) -> str:
    """The telling line of Ray's message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in lines if "died" in line or "exit" in line.lower()), lines[0] if lines else "no reason given"
    )
