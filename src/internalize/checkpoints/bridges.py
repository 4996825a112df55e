"""Who converts which model: our own table for Qwen3-type decoders, megatron-bridge for the hybrids.

Invariant: whoever converts, the tensors that come out are held against a list made from the model folder that the run
started from, and a tensor that is missing, unexpected or of another shape is an error that names it. A bridge that
drops what Megatron never held (vision tower, prediction head) is caught here, not in an engine that answers "!".
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from internalize.checkpoints import from_hf, to_hf
from internalize.checkpoints.hf_names import TensorMismatchError
from internalize.checkpoints.safetensors import ModelRows
from internalize.checkpoints.to_hf import Dtype
from internalize.errors import UserError
from internalize.files import read_json

Progress = Callable[[str], None]
OWN = frozenset({"qwen3"})
BRIDGED = frozenset({"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"})
"""Model types with gated delta rule layers. That megatron-bridge knows the 3.5 ones is read in its source."""


class Converter(Protocol):
    """Converts the weights of one family of models both ways."""

    name: str

    def to_hf(
        self, checkpoint: Path, origin: Path, folder: Path, dtype: Dtype, shard_bytes: int, progress: Progress
    ) -> list[str]:
        """Writes the weights of an ``iter_*`` folder as safetensors into ``folder``; returns the file names.

        Args:
            origin: the model folder that the run started from: config.json, and for some converters its weights.
        """

    def from_hf(
        self, model: Path, checkpoint: Path, iteration: int, args: Mapping[str, Any], dtype: Dtype, progress: Progress
    ) -> None:
        """Writes a model folder as an ``iter_*`` folder."""


class OwnTable:
    """The table of ``hf_names``: no Megatron, bounded memory, resumable."""

    name = "internalize"

    def to_hf(
        self, checkpoint: Path, origin: Path, folder: Path, dtype: Dtype, shard_bytes: int, progress: Progress
    ) -> list[str]:
        """See ``Converter``."""
        config = read_json(origin / "config.json")
        return to_hf.write_weights(checkpoint, config, folder, dtype, shard_bytes, progress=progress)

    def from_hf(
        self, model: Path, checkpoint: Path, iteration: int, args: Mapping[str, Any], dtype: Dtype, progress: Progress
    ) -> None:
        """See ``Converter``."""
        from_hf.write_checkpoint(model, checkpoint, iteration, args, dtype, progress=progress)


class MegatronBridge:
    """megatron-bridge's ``AutoBridge``, on an image with CUDA, Transformer Engine and megatron-bridge.

    Not run here: megatron-bridge does not import on a CPU. The calls follow its source (0.6: the class method
    ``import_ckpt(hf_model_id, megatron_path)``, and ``from_hf_pretrained(path).export_ckpt(megatron_path, hf_path,
    show_progress, strict)``); the tests hold our side of the interface against a double with these signatures. It
    chooses sharding and types itself, so a type that it did not write is an error and ``shard_bytes`` has no effect.
    """

    name = "megatron-bridge"

    def to_hf(
        self, checkpoint: Path, origin: Path, folder: Path, dtype: Dtype, shard_bytes: int, progress: Progress
    ) -> list[str]:
        """See ``Converter``. Needs the weights of ``origin``: what comes out is compared with them by name."""
        bridge = self._auto_bridge().from_hf_pretrained(str(origin))
        bridge.export_ckpt(megatron_path=str(checkpoint), hf_path=str(folder), show_progress=False, strict=True)
        check_names(origin, folder, dtype)
        progress(f"{folder.name} written by megatron-bridge")
        return sorted(path.name for path in folder.glob("*.safetensors*"))

    def from_hf(
        self, model: Path, checkpoint: Path, iteration: int, args: Mapping[str, Any], dtype: Dtype, progress: Progress
    ) -> None:
        """See ``Converter``. It writes its own layout below ``checkpoint``; iteration and arguments are its own."""
        self._auto_bridge().import_ckpt(hf_model_id=str(model), megatron_path=str(checkpoint))
        progress(f"{checkpoint.name} written by megatron-bridge")

    @staticmethod
    def _auto_bridge() -> Any:
        try:
            return importlib.import_module("megatron.bridge").AutoBridge
        except (ImportError, AttributeError) as error:
            raise UserError(
                "this model needs megatron-bridge, which does not import here",
                got=f"{type(error).__name__}: {error}",
                expected="the GPU image: CUDA, Transformer Engine and megatron-bridge",
                fix="run the conversion in that image (envs/), or use a Qwen3-type model",
            ) from error


def converter_for(config: Mapping[str, Any], where: str = "config.json") -> Converter:
    """The converter of a model.

    Raises:
        UserError: nobody here converts this type of model.
    """
    kind = config.get("model_type", "qwen3")
    if kind in OWN:
        return OwnTable()
    if kind in BRIDGED:
        return MegatronBridge()
    raise UserError(
        "no converter for this type of model",
        where=f"{where}: model_type",
        expected=", ".join(sorted(OWN | BRIDGED)),
        got=str(kind),
        fix="add its names to checkpoints/hf_names.py, or a Converter to checkpoints/bridges.py",
    )


def check_names(origin: Path, folder: Path, dtype: Dtype = "keep") -> None:
    """Holds the tensors of a model folder against those of the folder that the run started from.

    Raises:
        TensorMismatchError: names tensors that are missing, unexpected, of another shape or of another type than asked.
    """
    with ModelRows(origin) as wanted, ModelRows(folder) as have:
        missing = [f"missing {name} {list(s.shape)}" for name, s in wanted.slots.items() if name not in have.slots]
        extra = [f"unexpected {name}" for name in sorted(set(have.slots) - set(wanted.slots))]
        both = [(name, slot, wanted.slots[name]) for name, slot in have.slots.items() if name in wanted.slots]
        wrong = [f"{name} is {list(s.shape)}, not {list(w.shape)}" for name, s, w in both if s.shape != w.shape]
        typed = [f"{name} is {s.dtype}" for name, s, _ in both if dtype != "keep" and str(s.dtype) != f"torch.{dtype}"]
    problems = [*missing, *extra, *wrong, *typed]
    if problems:
        raise TensorMismatchError(
            f"{len(problems)} tensors of the converted model are not those of the model that the run started from",
            where=str(folder),
            expected=f"the {len(wanted.slots)} tensors of {origin.name}" + ("" if dtype == "keep" else f" as {dtype}"),
            got="; ".join(problems[:3]) + (" ..." if len(problems) > 3 else ""),
            fix="copy what Megatron never held from the original folder, or convert again with a bridge that keeps it",
        )
