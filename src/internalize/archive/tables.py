"""The archive's tables: what a row of each is, so that `datasets` loads every one with the types we mean.

Invariant: a table has one schema for all its files; every row that is written has every column, in the schema's order;
what has no fixed shape is one column of JSON text. All tables are JSON lines (plain, `.gz` or `.zst`): `datasets` takes
one builder a repository, from its first config.

Why so strict (measured with `datasets` 5.2, see notes in docs/archive.md): inferred types fail on columns that start
with nulls, on ints followed by floats and on objects of varying keys; declared `string` columns silently change dicts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.files import write_jsonl

SCHEMA_VERSION = 1
INT64 = 1 << 63
HALF = re.compile("[\ud800-\udfff]")
JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
"""Of columns with no fixed shape; ASCII, so that it holds no half of a surrogate pair."""
SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "bool": (bool,), "int64": (int,), "float64": (int, float)}

Feature = str | dict[str, Any] | list[Any]
"""`string`, `int64`, `float64`, `bool`, `json` (JSON text in a string), `{"list": ...}`, or a list of named parts."""


@dataclass(frozen=True)
class Table:
    """One config of the dataset card."""

    name: str
    about: str
    columns: Mapping[str, Feature]
    files: Sequence[str] = ()
    """Patterns below the archive's root; a config is left out when nothing matches."""
    version: int = SCHEMA_VERSION

    def row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A row in the schema's order and types; missing values are null.

        Raises:
            ValueError: a key that the schema lacks, or a value that a column can't hold.
        """
        if unknown := [key for key in values if key not in self.columns]:
            raise ValueError(f"table {self.name} has no column {unknown[0]}")
        get, name = values.get, self.name
        return {key: as_feature(get(key), feature, name, key) for key, feature in self.columns.items()}

    def write(self, path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
        """Writes rows; how many."""
        return write_jsonl(path, (self.row(values) for values in rows))

    def features(self) -> list[dict[str, Any]]:
        """The card's `features:` entry."""
        return [_named(name, feature) for name, feature in self.columns.items()]


@dataclass
class Counts:
    """Rows of each file of each table."""

    rows: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, table: str, path: str, rows: int) -> None:
        """Counts a file of a table."""
        self.rows.setdefault(table, {})[path] = rows


def as_feature(value: Any, feature: Feature, table: str, key: str) -> Any:
    """A value as its column holds it.

    Raises:
        ValueError: it can't.
    """
    if value is None:
        return None
    if isinstance(feature, str):
        kind = type(value)
        if feature == "json":
            return JSON.encode(value)
        if kind not in SCALARS[feature]:
            raise ValueError(f"{table}.{key} is {feature}, not {value!r}")
        if feature == "int64" and not -INT64 <= value < INT64:
            raise ValueError(f"{table}.{key}: {value} does not fit int64")
        return float(value) if feature == "float64" else whole_text(value) if feature == "string" else value
    if isinstance(feature, dict):
        return [as_feature(one, feature["list"], table, key) for one in value]
    return {part["name"]: as_feature(value.get(part["name"]), part["feature"], table, key) for part in feature}


def whole_text(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair (an agent's stream can be cut inside one) becomes U+FFFD."""
    return HALF.sub("\ufffd", text)


def columns_of(rows: Sequence[Mapping[str, Any]], known: Mapping[str, Feature]) -> dict[str, Feature]:
    """Columns for rows of open keys: `known` first, then every other key by name, with the type that all its values
    share (a column with one float is float64, one with only nulls is float64, one of mixed kinds is JSON text)."""
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.items():
            if value is not None:
                kinds.setdefault(key, set()).add(_kind(value))
            else:
                kinds.setdefault(key, set())
    return {**known, **{key: _common(kinds[key]) for key in sorted(kinds) if key not in known}}


def _kind(value: Any) -> str:
    for kind, name in ((bool, "bool"), (int, "int64"), (float, "float64"), (str, "string")):
        if isinstance(value, kind):
            return name
    return "json"


def _common(kinds: set[str]) -> str:
    if kinds <= {"int64", "float64"}:
        return "int64" if kinds == {"int64"} else "float64"
    return kinds.pop() if len(kinds) == 1 else "json"


def _named(name: str, feature: Feature) -> dict[str, Any]:
    if isinstance(feature, str):
        return {"name": name, "dtype": "string" if feature == "json" else feature}
    if isinstance(feature, dict):
        return {"name": name, "list": _plain(feature["list"])}
    return {"name": name, "struct": [_named(part["name"], part["feature"]) for part in feature]}


def _plain(feature: Feature) -> Any:
    if isinstance(feature, str):
        return "string" if feature == "json" else feature
    if isinstance(feature, dict):
        return {"list": _plain(feature["list"])}
    return {"struct": [_named(part["name"], part["feature"]) for part in feature]}


def struct(**parts: Feature) -> list[Any]:
    """A feature of named parts."""
    return [{"name": name, "feature": feature} for name, feature in parts.items()]


RUN: dict[str, Feature] = {"run": "string", "source": "string", "step": "int64", "phase": "string"}
"""What rows of play start with: the run, `rollout | eval | harvest | gate`, the step and its phase."""

EPISODE = Table(
    "episodes",
    "one finished episode of a rollout or a harvest, with every part of its shaped return",
    {
        **RUN,
        "episode": "string",
        "level": "int64",
        "level_seed": "int64",
        "group": "int64",
        "index": "int64",
        **dict.fromkeys(("cleared", "dead", "text_end"), "bool"),
        **dict.fromkeys(("acts", "noops", "invalid", "budget"), "int64"),
        **dict.fromkeys(("progress0", "progress"), "float64"),
        "components": "json",
        "returned": "float64",
        "valid": "bool",
        "reason": "string",
        "unknown_words": "int64",
        "calls": "int64",
        "journal_rows": "int64",
    },
    ("runs/*/episodes.jsonl",),
)
CALL = Table(
    "calls",
    "one call of the model: the exact prompt and output token ids, log-probs, sampling and weight version",
    {
        **RUN,
        "episode": "string",
        "index": "int64",
        "prompt_ids": {"list": "int64"},
        "output_ids": {"list": "int64"},
        "logprobs": {"list": "float64"},
        "finish": "string",
        "weight_version": "string",
        "cached_tokens": "int64",
        "think": "string",
        "kind": "string",
        "call_word": "string",
        "observation": "string",
        "say": "string",
        "sampling": struct(temperature="float64", max_new_tokens="int64", stop_ids={"list": "int64"}),
    },
    ("runs/*/calls.jsonl.zst",),
)
JOURNAL = Table(
    "journal",
    "one tool call of the game; its result, whose keys vary, is JSON text",
    {
        **RUN,
        "episode": "string",
        "tool": "string",
        "arguments": struct(action="string", x="int64", y="int64"),
        "result": "json",
    },
    ("runs/*/journal.jsonl.zst",),
)
TRANSCRIPT = Table(
    "transcript",
    "one event of an agent CLI's own stream, as JSON text",
    {**RUN, "episode": "string", "index": "int64", "event": "json"},
    ("runs/*/transcript.jsonl.zst",),
)
