"""What a segment trains and plays with: everything in its own process, or ranks and engines elsewhere.

Invariant: whichever it is, a step asks for the same things in the same order, and the engine plays with exactly the
weights that the trainer holds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors.torch import save_file

from internalize.checkpoints.digest import tensor_digest
from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Engine
from internalize.files import commit
from internalize.games.protocol import Game
from internalize.language.dialogue import Dialogue
from internalize.rollout.actor import dtype_of, load_template
from internalize.runtime.engines import EnginePool
from internalize.runtime.group import TrainerGroup
from internalize.runtime.rank import TrainerSettings
from internalize.runtime.sync import FromDisk, Served, sync
from internalize.runtime.torchrun import TorchrunRanks
from internalize.study_parallel import Parallel
from internalize.train.optimizer import OptimizerSpec
from internalize.train.trainer import ParallelSpec, Trainer

if TYPE_CHECKING:
    from internalize.engine.remote import RemoteEngine


class Runtime(Protocol):
    """A trainer, an engine, and the way of weights from one to the other. Close it."""

    @property
    def trainer(self) -> Trainer | TrainerGroup:
        """What trains."""
        ...

    @property
    def engine(self) -> Engine:
        """What plays."""
        ...

    def load_base(self, folder: Path) -> None:
        """Starts from the weights of a model folder."""
        ...

    def sync(self, version: str) -> None:
        """Gives the trainer's weights to the engine, which may play from now on."""
        ...

    def before_training(self) -> None:
        """Play is over: the trainer may use the device."""
        ...

    def cpu_seconds(self) -> float:
        """CPU seconds of other processes since this was last asked."""
        ...

    def close(self) -> None:
        """Frees everything, whatever state it is in."""
        ...


class _OneRank:
    """What runtimes share whose trainer is in this process, with no device to give up and no other process to count."""

    trainer: Trainer

    def load_base(self, folder: Path) -> None:
        """See `Runtime`."""
        self.trainer.load_hf(ModelFolder(folder).state())

    def before_training(self) -> None:
        """See `Runtime`."""

    def cpu_seconds(self) -> float:
        """See `Runtime`."""
        return 0.0

    def close(self) -> None:
        """See `Runtime`."""
        self.trainer.close()


class Inline(_OneRank):
    """Trainer and engine in this process; weights are handed over in memory."""

    def __init__(self, trainer: Trainer, engine: LocalEngine) -> None:
        self.trainer, self.engine = trainer, engine

    def sync(self, version: str) -> None:
        """See `Runtime`."""
        self.engine.update_weights(self.trainer.export_hf(), version)


class InlineServed(_OneRank):
    """Trainer in this process, engines behind HTTP; weights go to them through the disk.

    Args:
        engine: closed with the runtime.
        transport: where weights are published.
    """

    def __init__(self, trainer: Trainer, engine: Engine, served: Served, transport: FromDisk, close: ExitStack) -> None:
        self.trainer, self.engine = trainer, engine
        self._served, self._transport, self._close = served, transport, close

    def sync(self, version: str) -> None:
        """See `Runtime`."""
        sync(OneFile(self.trainer), [self._served], version, self._transport)

    def close(self) -> None:
        """See `Runtime`."""
        super().close()
        self._close.close()


class OneFile:
    """A trainer of one process as a `sync.Publisher`."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def publish(self, folder: Path, dtype: str) -> dict[str, dict[str, str]]:
        """See `sync.Publisher`."""
        kind, name = getattr(torch, dtype), "model-00000.safetensors"
        state = {
            key: value.to(device="cpu", dtype=kind).contiguous() for key, value in self._trainer.export_hf().items()
        }
        commit(folder / name, lambda path: save_file(state, path, metadata={"format": "pt"}))
        return {name: {key: tensor_digest(value) for key, value in state.items()}}


class HttpServed:
    """Engines behind HTTP, as the weight sync sees them. They tell a version and no hashes: that all say the version
    that was sent is what `RemoteEngine.update_weights` has made sure of."""

    name = "the engine servers"

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine

    def load(self, folder: Path, version: str) -> None:
        """Replaces their weights."""
        self._engine.update_weights(folder.resolve(), version)

    def served(self) -> tuple[str, None]:
        """The version that they claim."""
        return self._engine.weight_version, None


class LocalServed:
    """The engine of this process, as the weight sync sees it."""

    name = "the engine of this process"

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    def load(self, folder: Path, version: str) -> None:
        """Replaces its weights."""
        self._engine.update_weights(ModelFolder(folder).state(), version)

    def served(self) -> tuple[str, dict[str, str]]:
        """Version and hashes of what it computes with."""
        return self._engine.weight_version, self._engine.served_digests()


class Spread:
    """A trainer over ranks, and engines wherever they are; weights go through the disk and are verified.

    Args:
        trainer: the ranks.
        engine: what plays.
        served: every engine behind it.
        transport: where weights are published.
        scratch: folder of these processes; removed on close.
        pool: the engines, where they take turns with the ranks on the same devices; None where each has its own.
        spent: CPU seconds of the engines' processes since it was last asked.
        stack: closed with the runtime; None has nothing more to close.
    """

    def __init__(
        self,
        trainer: TrainerGroup,
        engine: Engine,
        served: list[Served],
        transport: FromDisk,
        scratch: Path,
        pool: EnginePool | None = None,
        spent: Callable[[], float] = lambda: 0.0,
        stack: ExitStack | None = None,
    ) -> None:
        self.trainer, self.engine = trainer, engine
        self._served, self._transport, self._pool, self._spent = served, transport, pool, spent
        self._scratch, self._stack = scratch, stack or ExitStack()
        self._with_engines = False
        """Engines on shared devices have them now; they come up empty, and the first sync fills them."""

    def load_base(self, folder: Path) -> None:
        """See `Runtime`."""
        self.trainer.load_folder(folder)

    def sync(self, version: str) -> None:
        """See `Runtime`. On shared devices the trainer leaves as soon as its weights are published."""
        sync(self.trainer, self._served, version, self._transport, self._to_engines)

    def before_training(self) -> None:
        """See `Runtime`."""
        if self._pool is not None and self._with_engines:
            self._pool.all("offload")
            self.trainer.onload()
            self._with_engines = False

    def _to_engines(self) -> None:
        if self._pool is not None and not self._with_engines:
            self.trainer.offload()
            self._pool.all("onload")
            self._with_engines = True

    def cpu_seconds(self) -> float:
        """See `Runtime`."""
        return self.trainer.cpu_seconds() + self._spent()

    def close(self) -> None:
        """See `Runtime`."""
        self.trainer.close()
        self._stack.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def open_runtime(
    parallel: Parallel,
    base: Path,
    game: Game,
    *,
    seed: int,
    slots: int,
    max_len: int,
    scratch: Path,
    engine: Mapping[str, Any] | None = None,
) -> tuple[Runtime, Dialogue]:
    """The runtime of a segment, and the template over its base's vocabulary; no weights are loaded yet.

    Args:
        parallel: the arm's settings.
        base: model folder.
        seed: of the trainer.
        slots, max_len: calls at once, and tokens of a sequence, that play needs.
        scratch: folder for published weights and logs, seen by every process; removed on close.
        engine: the study's `engine`; None: engines of ours, without HTTP.

    Raises:
        UserError: the base does not fit the shape, or Ray is missing.
        WorkerLost: ranks or engines did not come up.
    """
    template, config = load_template(base, game)
    settings = trainer_settings(parallel, config, seed)
    if parallel.runtime == "ray":
        from internalize.runtime.rays import open_ray

        return open_ray(parallel, settings, base, slots, max_len, scratch, engine), template
    if engine is not None:
        return _over_http(parallel, settings, base, engine, slots, max_len, scratch), template
    local = LocalEngine(config, slots=slots, max_len=max_len)
    return around(local, parallel, settings, base, scratch), template


def _over_http(
    parallel: Parallel,
    settings: TrainerSettings,
    base: Path,
    engine: Mapping[str, Any],
    slots: int,
    max_len: int,
    scratch: Path,
) -> Runtime:
    """Servers on this node, with a trainer in this process or over `torchrun`'s ranks."""
    from internalize.engine.servers import open_servers

    transport = FromDisk(scratch / "weights", base, dtype_of(settings.model_config))
    stack = ExitStack()
    try:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        remote = stack.enter_context(open_servers(engine, base, slots, max_len))
        served = HttpServed(remote)
        if parallel.runtime == "inline":
            return InlineServed(settings.trainer(), remote, served, transport, stack)
        trainer = TrainerGroup(TorchrunRanks(parallel.ranks, scratch / "ranks.log"), settings)
        return Spread(trainer, remote, [served], transport, scratch, stack=stack)
    except BaseException:
        stack.close()
        raise


def around(
    engine: LocalEngine, parallel: Parallel, settings: TrainerSettings, base: Path, scratch: Path
) -> Inline | Spread:
    """A runtime whose engine is this process's, with its trainer here or, for `torchrun`, in ranks; see
    `open_runtime`."""
    if parallel.runtime == "inline":
        return Inline(settings.trainer(), engine)
    trainer = TrainerGroup(TorchrunRanks(parallel.ranks, scratch / "ranks.log"), settings)
    return Spread(trainer, engine, [LocalServed(engine)], FromDisk(scratch / "weights", base), scratch)


def trainer_settings(parallel: Parallel, config: Mapping[str, Any], seed: int) -> TrainerSettings:
    """A trainer's settings from the study's."""
    shape = ParallelSpec(
        tp=parallel.tensor,
        pp=parallel.pipeline,
        recompute=parallel.recompute == "full",
        sequence_parallel=parallel.sequence_parallel,
        distributed_optimizer=parallel.distributed_optimizer,
        precision=parallel.precision,
    )
    return TrainerSettings(dict(config), OptimizerSpec(), shape, seed, parallel.micro_batch_tokens)
