"""Weights from the trainer to every engine: sent as one version, then proven by what the engines serve.

Invariant: when `sync` returns, every engine computes with exactly the tensors that the trainer sent, under that
version's label; otherwise the engines that do not are named. (An engine that tells no hashes, as SGLang, is judged by
its label; the numeric gates compare its log-probs.)

How tensors travel is a `Transport`'s business. From disk works wherever trainer and engines see one file system; one
over NCCL would broadcast between `publish` and `deliver`, give the same hashes, and everything else here would stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from internalize.checkpoints.digest import state_digest
from internalize.errors import UserError
from internalize.files import disk_error, fsync_dir, write_bytes, write_json

INDEX, RECORD = "model.safetensors.index.json", "weights.json"
WEIGHTS = ("*.safetensors", INDEX, RECORD)


class StaleWeights(UserError):
    """An engine serves other weights than those that were sent."""

    title = "weight sync failed"


class Publisher(Protocol):
    """A trainer that can write its weights."""

    def publish(self, folder: Path, dtype: str) -> dict[str, dict[str, str]]:
        """Writes files of tensors into `folder`: file -> tensor -> hash."""
        ...


class Served(Protocol):
    """An engine that takes weights from a folder."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def load(self, folder: Path, version: str) -> None:
        """Replaces its weights."""
        ...

    def served(self) -> tuple[str, dict[str, str] | None]:
        """The version it claims, and the hash of every tensor that it computes with; None where it does not say."""
        ...


class Transport(Protocol):
    """A way for weights to travel."""

    def publish(self, trainer: Publisher, version: str) -> dict[str, str]:
        """The trainer's side: makes its weights available as `version`; tensor -> hash."""
        ...

    def deliver(self, engines: Sequence[Served], version: str) -> None:
        """The engines' side: each takes what was published."""
        ...

    def settled(self, version: str) -> None:
        """All engines were found to hold `version`: older ones may go."""
        ...


class FromDisk:
    """Through a folder that trainer and engines see.

    Args:
        root: folder of the published versions; made when needed.
        model: model folder whose config and tokenizer go with the weights.
        dtype: type that is written: the engines'.
    """

    def __init__(self, root: Path, model: Path, dtype: str = "float32") -> None:
        self.root, self.model, self.dtype = root, model, dtype

    def deliver(self, engines: Sequence[Served], version: str) -> None:
        """See `Transport`."""
        with ThreadPoolExecutor(len(engines)) as pool:
            list(pool.map(lambda engine: engine.load(self.root / version, version), engines))

    def settled(self, version: str) -> None:
        """See `Transport`."""
        for path in self.root.iterdir():
            if path.name != version:
                shutil.rmtree(path, ignore_errors=True)

    def publish(self, trainer: Publisher, version: str) -> dict[str, str]:
        """See `Transport`; the folder of a version is complete under its name or not there."""
        final, partial = self.root / version, self.root / f"{version}.partial"
        try:
            for path in (partial, final):
                shutil.rmtree(path, ignore_errors=True)
            partial.mkdir(parents=True)
            files = trainer.publish(partial, self.dtype)
            digests = {name: value for tensors in files.values() for name, value in tensors.items()}
            index = {"metadata": {}, "weight_map": {name: file for file, tensors in files.items() for name in tensors}}
            write_json(partial / INDEX, index)
            write_json(partial / RECORD, {"version": version, "dtype": self.dtype, "tensors": digests})
            for path in self.model.iterdir():
                if path.is_file() and not any(path.match(pattern) for pattern in WEIGHTS):
                    write_bytes(partial / path.name, path.read_bytes())
            partial.rename(final)
            fsync_dir(self.root)
        except OSError as error:
            raise disk_error(error, partial) from error
        return digests


def sync(
    trainer: Publisher,
    engines: Sequence[Served],
    version: str,
    transport: Transport,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Sends the trainer's weights as `version` and verifies them.

    Args:
        between: called when the weights are published and before the engines take them: the moment at which trainer
            and engines that share devices change places.

    Raises:
        StaleWeights: an engine serves something else.
        UserError: an engine refused the weights, or the file system a write.
    """
    sent = transport.publish(trainer, version)
    between()
    transport.deliver(engines, version)
    verify(engines, version, sent)
    transport.settled(version)


def verify(engines: Sequence[Served], version: str, sent: Mapping[str, str]) -> None:
    """Compares what every engine serves with what was sent.

    Raises:
        StaleWeights: names each engine that differs, its version, and the first tensor.
    """
    problems = []
    for engine in engines:
        claimed, told = engine.served()
        digests = sent if told is None else told
        wrong = [name for name in sent if digests.get(name) != sent[name]] + [n for n in digests if n not in sent]
        if claimed != version or wrong:
            tensors = f"{len(wrong)} of {len(sent)} tensors differ, first {wrong[0]}" if wrong else "all tensors agree"
            problems.append(f"{engine.name} claims {claimed or 'no version'}, {tensors}")
    if problems:
        stale = ", ".join(problem.split(" claims ")[0] for problem in problems)
        raise StaleWeights(
            f"{stale} does not serve the weights of {version}",
            where=f"{len(engines)} engines",
            expected=f"{version} in every engine, tensors with hash {state_digest(sent)[:12]}",
            got="; ".join(problems),
            fix="run the segment again: it starts from the last commit and sends the weights anew",
        )
