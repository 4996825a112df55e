"""Reading a study file: YAML 1.2 scalars, no duplicate keys, and the line of every value.

Invariant: what a file says is what Python gets (`5e-4` is a number, `no` is a word), and a complaint can name
the line, or the override, that set the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from internalize.errors import StudyError

KeyPath = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """PyYAML with the scalars of YAML 1.2: PyYAML reads `5e-4` as text and `no` as false."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"(?:null|~|)", ["n", "~", ""]),
    ("bool", r"(?:true|false)", ["t", "f"]),
    ("int", r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}$"), _first)


@dataclass
class Source:
    """A study file's data, and where each value was set."""

    path: Path
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overrides: dict[KeyPath, str] = field(default_factory=dict)

    def where(self, keys: KeyPath) -> str:
        """`file:line, key.path`, or the override that set the value; the line is the closest that exists."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.overrides:
                return f"--set {self.overrides[keys[:length]]}"
        line = next((self.lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.lines), None)
        place = f"{self.path}:{line}" if line else f"{self.path}"
        return f"{place}, {dotted(keys)}" if keys else place

    def override(self, assignment: str) -> None:
        """Applies `a.b.c=value`; the value is read as YAML, so numbers are numbers.

        Raises:
            StudyError: no `=`, an empty key, no YAML value, or a path through something without keys.
        """
        name, separator, text = assignment.partition("=")
        keys = tuple(name.strip().split("."))
        if not separator or not all(keys):
            where, expected = f"--set {assignment}", "key.path=value, for example rl.lr=2e-4"
            raise StudyError("malformed override", where=where, expected=expected)
        node: Any = self.data
        for depth, key in enumerate(keys[:-1]):
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                raise StudyError(
                    f"`{dotted(keys[: depth + 1])}` has no keys below it",
                    where=f"--set {assignment}",
                    got=f"{node!r}",
                    fix=f"set {dotted(keys[: depth + 1])}=... as a whole",
                )
        node[keys[-1]] = _scalar(text, assignment)
        self.overrides[keys] = assignment


def dotted(keys: Sequence[str | int]) -> str:
    """`("a", "b", 0)` as `a.b[0]`."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def read_source(path: Path) -> Source:
    """Reads a study file.

    Raises:
        StudyError: no such file, not YAML, a duplicate key, a key that is no word, or no mapping at the top.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        fix = "give a path below config/, or your own file"
        raise StudyError("no such study file", where=str(path), fix=fix) from error
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"cannot read the study file ({error})", where=str(path)) from error
    node = _compose(text, str(path))
    source = Source(path, {})
    data = _plain(node, (), source) if node is not None else None
    if not isinstance(data, dict):
        expected = "keys such as name, game, arms"
        raise StudyError("a study is a mapping", where=str(path), expected=expected, got=type(data).__name__)
    source.data = data
    return source


def _compose(text: str, where: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        fix = "check indentation, quotes and brackets on that line"
        raise StudyError(f"not valid YAML: {error.problem}", where=place, fix=fix) from error
    except yaml.YAMLError as error:
        raise StudyError(f"not valid YAML: {error}", where=where) from error
    finally:
        loader.dispose()


def _plain(node: yaml.Node, keys: KeyPath, source: Source) -> Any:
    """The node as Python values; `source.lines` learns every key path."""
    source.lines.setdefault(keys, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, (*keys, index), source) for index, child in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, child in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                got = f"a {key_node.id}"
                raise StudyError("a key must be a word", where=f"{source.path}:{line}", got=got)
            if key in result:
                raise StudyError(
                    f"the key `{key}` stands twice",
                    where=f"{source.path}:{line}, {dotted((*keys, key))}",
                    got=f"first on line {first[key]}, again on line {line}",
                    fix="keep one of the two",
                )
            first[key] = source.lines[(*keys, key)] = line
            result[key] = _plain(child, (*keys, key), source)
        return result
    return _value(node, f"{source.path}:{node.start_mark.line + 1}")


def _value(node: yaml.Node, where: str) -> Any:
    kind = node.tag.rsplit(":", 1)[-1]
    if kind == "null":
        return None
    if kind == "bool":
        return node.value == "true"
    if kind == "int":
        return int(node.value.replace("_", ""))
    if kind == "float":
        return float(node.value)
    if kind == "str":
        return node.value
    fix = "write the value without a tag"
    raise StudyError(f"the YAML tag `{node.tag}` is not supported", where=where, fix=fix)


def _scalar(text: str, assignment: str) -> Any:
    where = f"--set {assignment}"
    node = _compose(text, where)
    return _plain(node, (), Source(Path(where), {})) if node is not None else None
