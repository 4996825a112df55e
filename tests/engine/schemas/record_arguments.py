"""Record the command line of an SGLang release's server: `python record_arguments.py sglang-X.Y.Z-....whl`.

Reads the wheel's source without importing it and writes `sglang-X.Y.Z-arguments.json` beside this file: every flag with
the type of its value, and the attention backends. Names and types only.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIELDS, CHOICES = "sglang/srt/arg_groups/fields/", "sglang/srt/arg_groups/choices.py"


def record(wheel: Path) -> dict[str, Any]:
    """The recorded facts of one wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(FIELDS) and name.endswith(".py")]
        flags = dict(flag for name in names for flag in _flags(ast.parse(archive.read(name))))
        choices = ast.parse(archive.read(CHOICES))
    return {
        "sglang": wheel.name.split("-")[1],
        "attention_backends": next(_strings(choices, "ATTENTION_BACKEND_CHOICES")),
        "flags": dict(sorted(flags.items())),
    }


def _flags(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`name: A[type, ...]` in a class is a flag of that name, and of its aliases."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name),
                annotation=ast.Subscript(value=ast.Name(id="A"), slice=ast.Tuple(elts=[kind, *rest])),
            ):
                words = {word.arg: word.value for one in rest if isinstance(one, ast.Call) for word in one.keywords}
                given = words.get("cli_name")
                names = [given.value if isinstance(given, ast.Constant) else "--" + name.replace("_", "-")]
                aliases = words.get("aliases")
                names += [one.value for one in getattr(aliases, "elts", []) if isinstance(one, ast.Constant)]
                if "no_cli" not in words:
                    yield from ((str(flag), ast.unparse(kind)) for flag in names)


def _strings(tree: ast.Module, name: str) -> Iterator[list[str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            yield [one.value for one in getattr(node.value, "elts", []) if isinstance(one, ast.Constant)]


if __name__ == "__main__":
    source = Path(sys.argv[1])
    made = record(source)
    target = Path(__file__).with_name(f"sglang-{made['sglang']}-arguments.json")
    target.write_text(json.dumps(made, indent=0) + "\n")
    print(target.name)
