"""A HF model folder as an engine sees it: configuration, tensors, version label, end tokens.

Invariant: equal weight files have equal version labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.files import read_json, sha256_file

if TYPE_CHECKING:  # the launcher of engine processes starts faster without torch
    from torch import Tensor

    from internalize.engine.local import LocalEngine

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
DEFAULT_MAX_LEN = 2048
"""Upper limit of the default `max_len`: cache memory grows with it."""


@dataclass(frozen=True)
class ModelFolder:
    """Reads lazily: nothing is opened before it is asked for."""

    path: Path

    def config(self) -> dict[str, Any]:
        """`config.json`. Raises UserError when the folder has none."""
        if not (self.path / "config.json").is_file():
            raise UserError("not a model folder", where=str(self.path), expected="a folder with config.json")
        config: dict[str, Any] = read_json(self.path / "config.json")
        return config

    def state(self) -> Mapping[str, Tensor]:
        """All tensors by HF name, from one file or from shards with an index. Raises MissingPayload or
        CorruptPayload."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        sharded = self._weights().name == INDEX
        names = sorted(set(read_json(self.path / INDEX)["weight_map"].values())) if sharded else [SINGLE]
        state: dict[str, Tensor] = {}
        for name in names:
            path = self.path / name
            if not path.exists():
                raise MissingPayload("the model folder lacks its weights", where=str(path))
            try:
                state.update(load_file(path))
            except SafetensorError as error:
                raise CorruptPayload(f"not a safetensors file ({error})", where=str(path)) from error
        return state

    def version(self) -> str:
        """The first 12 hex digits of the hash of the weight file (or of the index of several). Raises
        MissingPayload."""
        return sha256_file(self._weights())[:12]

    def _weights(self) -> Path:
        """The index of several weight files, or the one there is."""
        self.config()
        found = next((self.path / name for name in (INDEX, SINGLE) if (self.path / name).is_file()), None)
        if found is None:
            raise MissingPayload("the model folder lacks its weights", where=str(self.path / SINGLE))
        return found

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """End tokens of `generation_config.json`, else of `config.json`."""
        generation = self.path / "generation_config.json"
        config = read_json(generation) if generation.is_file() else self.config()
        ids = config.get("eos_token_id")
        return () if ids is None else tuple(ids) if isinstance(ids, list) else (int(ids),)

    def engine(self, slots: int = 128, max_len: int | None = None) -> LocalEngine:
        """A local engine with these weights. `max_len` None: what the model was made for, at most
        `DEFAULT_MAX_LEN`."""
        from internalize.engine.local import LocalEngine

        config = self.config()
        if max_len is None:
            max_len = min(int(config.get("max_position_embeddings", DEFAULT_MAX_LEN)), DEFAULT_MAX_LEN)
        engine = LocalEngine(config, slots=slots, max_len=max_len)
        engine.update_weights(self.state(), self.version())
        return engine
