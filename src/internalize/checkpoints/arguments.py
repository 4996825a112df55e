"""The arguments that a checkpoint was written with, and whether they describe the model of a config.json.

Invariant: reading arguments runs nothing that the file contains. Megatron-LM and slime store a whole ``Namespace`` with
enums, types and functions in ``common.pt``; everything in it but plain values becomes text that names it.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from internalize.checkpoints.handles import damaged
from internalize.checkpoints.tombstone import refuse_pruned
from internalize.errors import MissingPayload, UserError

COMMON = "common.pt"
MEGATRON = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_query_groups",
    "head_dim": "kv_channels",
    "rms_norm_eps": "norm_epsilon",
    "rope_theta": "rotary_base",
}
"""config.json key -> Megatron argument that must be equal."""
FIXED = {
    "normalization": "RMSNorm",
    "swiglu": True,
    "qk_layernorm": True,
    "add_bias_linear": False,
    "add_qkv_bias": False,
    "position_embedding_type": "rope",
}
"""Megatron arguments that a Qwen3-type model has."""
HF = (*MEGATRON, "vocab_size", "tie_word_embeddings", "model_type")


class ConfigMismatchError(UserError):
    """config.json and the arguments of the checkpoint describe different models."""

    title = "checkpoint mismatch"


def read_common(path: Path) -> dict[str, Any]:
    """The plain part of a ``common.pt``: ``args``, ``iteration``, ``checkpoint_version``; the rest is left out.

    Raises:
        MissingPayload: there is no such file.
        CorruptPayload: it is not a torch.save file of a dict.
    """
    if not path.is_file():
        refuse_pruned(path.parent)
        raise MissingPayload("the checkpoint is incomplete", where=str(path), got="no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            common = _Unpickler(io.BytesIO(archive.read(name))).load()
    except Exception as error:  # a damaged pickle raises almost anything
        raise damaged(path, "a torch.save file of a dict", f"{type(error).__name__}: {error}") from error
    if not isinstance(common, dict):
        raise damaged(path, "a torch.save file of a dict", type(common).__name__)
    kept = {name: plain(common[name]) for name in ("iteration", "checkpoint_version") if name in common}
    args = common.get("args", {})
    return kept | {"args": plain(args.__dict__ if isinstance(args, _Record) else args)}


def check_config(config: Mapping[str, Any], args: Mapping[str, Any], where: str) -> None:
    """Holds a config.json against the arguments of a checkpoint: ours hold a config, Megatron's a name for each size.

    An argument that the checkpoint does not mention is not compared.

    Raises:
        ConfigMismatchError: names every key that differs.
    """
    problems = _against_config(config, args["model_config"]) if "model_config" in args else _against(config, args)
    if problems:
        raise ConfigMismatchError(
            "config.json and the checkpoint's arguments describe different models",
            where=where,
            expected="; ".join(expected for expected, _ in problems[:4]),
            got="; ".join(got for _, got in problems[:4]) + (" ..." if len(problems) > 4 else ""),
            fix="use the config.json that the run was started with",
        )


def _against_config(config: Mapping[str, Any], saved: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (f"{key} {_value(config, key)!r}", f"args.model_config.{key} {_value(saved, key)!r}")
        for key in HF
        if _value(saved, key) is not None and not _equal(_value(config, key), _value(saved, key))
    ]


def _against(config: Mapping[str, Any], args: Mapping[str, Any]) -> list[tuple[str, str]]:
    problems = [
        (f"{key} {_value(config, key)!r}", f"args.{name} {args[name]!r}")
        for key, name in MEGATRON.items()
        if args.get(name) is not None and not _equal(_value(config, key), args[name])
    ]
    problems += [
        (f"{name} {value!r}", f"args.{name} {args[name]!r}")
        for name, value in FIXED.items()
        if args.get(name) is not None and args[name] != value
    ]
    padded, vocab = args.get("padded_vocab_size"), config.get("vocab_size", 0)
    if padded is not None and padded < vocab:
        problems.append((f"vocab_size {vocab}", f"args.padded_vocab_size {padded}"))
    untied, tied = args.get("untie_embeddings_and_output_weights"), bool(config.get("tie_word_embeddings", False))
    if untied is not None and bool(untied) == tied:
        problems.append((f"tie_word_embeddings {tied}", f"args.untie_embeddings_and_output_weights {untied}"))
    return problems


def _value(config: Mapping[str, Any], key: str) -> Any:
    if key == "rope_theta":  # older files hold it at the top, newer ones below
        return config.get(key) or (config.get("rope_parameters") or {}).get(key)
    if key == "tie_word_embeddings":
        return bool(config.get(key, False))
    return config.get(key)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9)
    return bool(a == b)


def plain(value: Any) -> Any:
    """The value as JSON: containers kept, whatever is no plain value as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return str(value)


class _Record:
    """Stands in for whatever a pickle names: keeps what was pickled, runs nothing."""

    name = ""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __call__(self, *values: Any) -> _Record:
        """What a pickle would have called gives nothing new."""
        return self

    def append(self, value: Any) -> None:
        """A list subclass is filled so; its entries are not wanted."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """A dict subclass is filled so; its entries are not wanted."""

    def __str__(self) -> str:
        values = getattr(self, "values", ())
        return f"{self.name}({', '.join(map(str, values))})" if values else self.name


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        return _named(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        return None


class _Named(type):
    """Makes the stand-in print its name also where the class itself was pickled (a function, a type)."""

    def __str__(cls) -> str:
        return str(cls.__dict__.get("name", cls.__name__))


def _named(name: str) -> Any:
    return _Named(name.rpartition(".")[2], (_Record,), {"name": name})
