"""Fingerprint of a stage's code: what the module and all that it imports do, not how they look.

Invariant: comments, docstrings, formatting and time stamps change nothing; any other edit of a module
that the stage can reach inside the package, lazily or by a name in a string too, changes the fingerprint.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IGNORED = frozenset(
    f"internalize.{name}"
    for name in (
        "budget",
        "cli",
        "errors",
        "fingerprint",
        "receipts",
        "runlog",
        "stages",
        "startup",
        "store",
        "workflow",
    )
) | frozenset(f"internalize.diagnostics{name}" for name in ("", ".limits", ".meminfo", ".stall", ".watchdog"))
"""Modules that launch, store and report but cannot change what a stage computes."""

ON_DEMAND = frozenset({"internalize.harness.cli_episode"})
"""Modules that only some studies run, by their settings: they count where `of` is told so."""

CACHE_VERSION = 1


@dataclass
class Fingerprints:
    """Fingerprints of a package's modules; what a file means is kept in `cache` by time stamp and size."""

    package: str = "internalize"
    root: Path | None = None
    """Folder that holds the package's folder; found through the import system unless given."""
    cache: Path | None = None
    """JSON file; deleting it costs only time."""
    ignored: frozenset[str] = IGNORED | ON_DEMAND
    _known: dict[str, list[Any]] = field(default_factory=dict, init=False)
    _fresh: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._folder = (self.root or _package_root(self.package)) / self.package
        if self.cache is not None:
            self._known = _read_cache(self.cache)

    def of(self, module: str, also: Sequence[str] = ()) -> str:
        """Fingerprint (16 hex digits) of `module`, of the modules `also` and of all that they reach.

        Raises:
            ModuleNotFoundError: the package has no such module.
        """
        state = hashlib.sha256()
        for name, meaning in sorted(self.reached(module, also).items()):
            state.update(f"{name}={meaning}\n".encode())
        self._write_cache()
        return state.hexdigest()[:16]

    def reached(self, module: str, also: Sequence[str] = ()) -> dict[str, str]:
        """Module -> hash of its meaning, for `module`, `also` and everything of the package that they reach."""
        for name in (module, *also):
            if self._path(name) is None:
                raise ModuleNotFoundError(f"no module {name} below {self._folder}")
        todo, seen = [module, *also], dict[str, str]()
        ignored = self.ignored - set(also)
        while todo:
            name = todo.pop()
            path = self._path(name)
            if name in seen or name in ignored or path is None:
                continue
            seen[name], mentioned = self._meaning(name, path)
            todo += mentioned
            todo += [name.rsplit(".", 1)[0]] if "." in name else []  # importing a.b runs a/__init__.py first
        return seen

    def _path(self, module: str) -> Path | None:
        parts = module.split(".")
        if parts[0] != self.package:
            return None
        base = self._folder.joinpath(*parts[1:])
        candidates = (
            base / "__init__.py",
            base.with_suffix(".py") if len(parts) > 1 else base / "__init__.py",
        )
        return next((path for path in candidates if path.is_file()), None)

    def _meaning(self, module: str, path: Path) -> tuple[str, list[str]]:
        stat = path.stat()
        stamp = [stat.st_mtime_ns, stat.st_size]
        known = self._known.get(str(path))
        if known is None or known[0] != stamp:
            tree = _without_docstrings(ast.parse(path.read_bytes(), filename=str(path)))
            meaning = hashlib.sha256(ast.dump(tree, annotate_fields=False).encode()).hexdigest()
            parent = module if path.name == "__init__.py" else module.rpartition(".")[0]
            known = [stamp, meaning, sorted(set(_mentioned(tree, parent, self.package)))]
            self._known[str(path)] = known
            self._fresh = False
        return known[1], known[2]

    def _write_cache(self) -> None:
        if self.cache is None or self._fresh:
            return
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.cache.with_name(f"{self.cache.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"version": CACHE_VERSION, "files": self._known}))
        temporary.replace(self.cache)
        self._fresh = True


def _package_root(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {package}")
    return Path(next(iter(spec.submodule_search_locations))).parent


def _read_cache(path: Path) -> dict[str, list[Any]]:
    try:
        data = json.loads(path.read_text())
        return dict(data["files"]) if data["version"] == CACHE_VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """The tree without bare strings: docstrings, and those under fields, say something but do nothing."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                kept = [line for line in block if not _is_bare_string(line)]
                setattr(node, name, kept or ([ast.Pass()] if block else []))
    return tree


def _is_bare_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _mentioned(tree: ast.Module, parent: str, package: str) -> Iterator[str]:
    """Modules of the package that a module imports anywhere or names in a string (`import_module` tables)."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and _only_for_types(node.test):
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == package)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = parent.split(".")[: len(parent.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            if base.split(".")[0] == package:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{package}."):
            yield node.value


def _only_for_types(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
