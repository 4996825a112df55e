"""The page of the study file, from its JSON schema: every key with its type, default and meaning.

Invariant: a key that a study file may hold is on the page once, in the section of the settings that it belongs to; a
test keeps the page in step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

HEAD = """# Study file

One YAML file is the study. A first line

```yaml
# yaml-language-server: $schema=./study.schema.json
```

lets editors complete keys and show this text. An unknown key, a value of another type, a name that does not exist and a
schedule that does not fit its steps are refused before the first job, with the line, what was expected and the nearest
valid name. `--config set="rl.lr=2e-4"` of Snakemake and `--set rl.lr=2e-4` of `internalize` override a key for one run.

A number given as a default is the vetted setting of the bundled study. `null` means that the key may be left out.
"""
OVERRIDES = re.compile(r"^Overrides of (\w+):")
SHORT = 60
"""Longest default that stands in a table; a longer one is that of the settings' own section."""


def study_page(schema: Schema, others: Mapping[str, Schema]) -> str:
    """The page of a study schema.

    Args:
        schema: of the study (`study.study_schema`).
        others: name -> schema of settings that only stand in it as overrides.
    """
    page = _Page({**schema["$defs"], **others})
    waiting = [(key, one) for key, one in sorted(schema["properties"].items())]
    while waiting:
        waiting = [pair for key, one in waiting for pair in page.collect(one, key)]
    sections = [page.own_section(name) for name in sorted(page.titles, key=page.titles.__getitem__)]
    return HEAD + page.section("Top of the file", schema) + "".join(sections)


class _Page:
    """Settings by name, and the title of each one's section: the key that it stands under."""

    def __init__(self, definitions: Schema) -> None:
        self.definitions = definitions
        self.titles: dict[str, str] = {}

    def collect(self, schema: Any, path: str) -> list[tuple[str, Any]]:
        """Gives titles to the settings that a key refers to and that have none yet; their own keys come back."""
        below = []
        for name in map(self._meant, _references(schema)):
            if name not in self.titles:
                own = self.definitions[name]
                here = f"{path}.NAME" if _named(schema) else path
                self.titles[name] = here + _kind(own)
                below += [(f"{here}.{key}", one) for key, one in sorted(own.get("properties", {}).items())]
        return below

    def _meant(self, name: str) -> str:
        """The settings that an override is one of."""
        overridden = OVERRIDES.match(self.definitions[name].get("description", ""))
        return overridden[1] if overridden else name

    def own_section(self, name: str) -> str:
        """The section of some settings."""
        return self.section(self.titles[name], self.definitions[name])

    def section(self, title: str, schema: Schema) -> str:
        """A section with its table of keys."""
        lines = [f"\n## {title}\n"]
        if about := schema.get("description"):
            lines += [_cell(about), ""]
        properties: Schema = schema.get("properties", {})
        if set(properties) - {"type"}:
            required = schema.get("required", ())
            lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
            for key, one in sorted(properties.items(), key=lambda item: (item[0] not in required, item[0])):
                default = "must be given" if key in required else _default(one)
                lines.append(f"| `{key}` | {self._type(one)} | {default} | {_cell(one.get('description', ''))} |")
            lines.append("")
        return "\n".join(lines)

    def _type(self, schema: Schema) -> str:
        """A type in words; settings are links to their sections."""
        if "$ref" in schema:
            name = _name(schema)
            meant = self._meant(name)
            title = self.titles[meant]
            return f"{'some keys of ' if meant != name else ''}[`{title.rpartition(' ')[2]}`](#{_slug(title)})"
        for key in ("oneOf", "anyOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(self._type(one) for one in schema[key]))
        if "const" in schema:
            return f"`{schema['const']}`"
        if "enum" in schema:
            return " or ".join(f"`{value}`" for value in schema["enum"])
        kind = str(schema.get("type", "any"))
        if kind == "array":
            return f"list of: {self._type(schema.get('items', {}))}"
        if kind == "object":
            return f"each name with: {self._type(_values(schema))}"
        words = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`", "null": "`null`"}
        return words.get(kind, kind) + _bounds(schema)


def _references(schema: Any) -> list[str]:
    """Names of the settings that a schema mentions, in order."""
    if isinstance(schema, list):
        return [name for one in schema for name in _references(one)]
    if not isinstance(schema, dict):
        return []
    own = [_name(schema)] if "$ref" in schema else []
    return own + [
        name for key, one in schema.items() if key not in ("discriminator", "default") for name in _references(one)
    ]


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _named(schema: Schema) -> bool:
    """Does the key hold settings by name?"""
    return schema.get("type") == "object"


def _values(schema: Schema) -> Schema:
    """The schema of what stands behind the names of an object."""
    patterns = list(schema.get("patternProperties", {}).values())
    found: Schema = patterns[0] if patterns else schema["additionalProperties"]
    return found


def _kind(schema: Schema) -> str:
    """Which of several it is: `, type recite`."""
    for key in ("type", "kind"):
        const = schema.get("properties", {}).get(key, {}).get("const")
        if const is not None:
            return f", {key} {const}"
    return ""


def _slug(title: str) -> str:
    """The anchor of a heading, as Python-Markdown and GitHub make it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    text = json.dumps(schema["default"])
    return f"`{text}`" if len(text) <= SHORT and text != "{}" else "its own defaults"


def _bounds(schema: Schema) -> str:
    """Limits of a number; patterns of texts are said in words where they are refused."""
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    told = [f"{word} {schema[key]:g}" for key, word in words.items() if key in schema and schema[key] < 2**31]
    return f" {' '.join(told)}" if told else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
