"""Record what an SGLang release says about its HTTP API: `python record.py sglang-X.Y.Z-....whl`.

Reads the wheel's source without importing it (SGLang's imports need a GPU build) and writes
`sglang-X.Y.Z.json` beside this file: a JSON schema of each request class that we send, the keys that SGLang
puts into its replies, and the methods of its routes. Only names, types and defaults are kept.
"""

from __future__ import annotations

import ast
import json
import sys
import typing
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, create_model

IO, SERVER = "sglang/srt/managers/io_struct.py", "sglang/srt/entrypoints/http_server.py"
SAMPLING, MANAGER = "sglang/srt/sampling/sampling_params.py", "sglang/srt/managers/tokenizer_manager.py"
LOADS, SNAPSHOT = "sglang/srt/entrypoints/v1_loads.py", "sglang/srt/managers/load_snapshot.py"
BATCH, VERSIONS = "sglang/srt/managers/schedule_batch.py", "sglang/srt/utils/weight_versions.py"

REQUESTS = {
    "GenerateReqInput": IO,
    "SamplingParams": SAMPLING,
    "UpdateWeightFromDiskReqInput": IO,
    "PauseGenerationReqInput": IO,
    "ContinueGenerationReqInput": IO,
    "AbortReq": IO,
    "ReleaseMemoryOccupationReqInput": IO,
    "ResumeMemoryOccupationReqInput": IO,
}
ROUTES = (
    "/generate",
    "/health",
    "/health_generate",
    "/model_info",
    "/update_weights_from_disk",
    "/pause_generation",
    "/continue_generation",
    "/flush_cache",
    "/abort_request",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/v1/loads",
)


def record(wheel: Path) -> dict[str, Any]:
    """The recorded facts of one wheel."""
    with zipfile.ZipFile(wheel) as archive:
        files = (IO, SERVER, SAMPLING, MANAGER, LOADS, SNAPSHOT, BATCH, VERSIONS)
        trees = {name: ast.parse(archive.read(name)) for name in files}
    manager, server = trees[MANAGER], trees[SERVER]
    return {
        "sglang": wheel.name.split("-")[1],
        "requests": {name: _schema(trees[file], name) for name, file in REQUESTS.items()},
        "routes": {
            route: sorted(methods)
            for route, methods in sorted([*_routes(server), *_routes(trees[LOADS])])
            if route in ROUTES
        },
        "replies": {
            "meta_info": sorted(_dict_keys(manager, "meta_info") | _dict_keys(trees[VERSIONS], "meta_info")),
            "finish_reason": {kind: sorted(keys) for kind, keys in _finish_reasons(trees[BATCH])},
            "weight_version_span": sorted(_fields(trees[VERSIONS], "WeightVersionSpan")),
            "load": sorted(_fields(trees[SNAPSHOT], "LoadSnapshot")),
            "model_info": sorted(_dict_keys(_function(server, "model_info"), "result")),
            "update_weights_from_disk": sorted(_dict_keys(_function(server, "update_weights_from_disk"), "content")),
        },
    }


# ---- requests ---
def _schema(tree: ast.Module, name: str) -> dict[str, Any]:
    fields = {
        field: (_type(node), ... if required else _default(value))
        for field, (node, value, required) in _fields(tree, name).items()
    }
    config = ConfigDict(extra="forbid", protected_namespaces=(), arbitrary_types_allowed=True)
    return create_model(name, __config__=config, **fields).model_json_schema()  # type: ignore[call-overload,no-any-return]


def _fields(tree: ast.Module, name: str) -> dict[str, tuple[ast.expr, ast.expr | None, bool]]:
    """Name -> (annotation, default, required), base classes of the same file first."""
    found: dict[str, tuple[ast.expr, ast.expr | None, bool]] = {}
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if node is None:
        return found  # msgspec.Struct and the like
    for base in node.bases:
        if isinstance(base, ast.Name):
            found |= _fields(tree, base.id)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            value = item.value
            if isinstance(value, ast.Call):  # field(default=...)
                value = next((k.value for k in value.keywords if k.arg == "default"), ast.Constant(None))
            found[item.target.id] = (item.annotation, value, value is None)
    return found


class _Names(dict[str, Any]):
    """What annotations may name; SGLang's own classes are Any."""

    def __missing__(self, key: str) -> Any:
        return Any


class _NoValidators(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node


def _type(node: ast.expr) -> Any:
    cleaned = ast.fix_missing_locations(ast.Expression(_NoValidators().visit(node)))
    names = _Names({n: getattr(typing, n) for n in typing.__all__}, str=str, int=int, float=float, bool=bool)
    return eval(compile(cleaned, "annotation", "eval"), {"__builtins__": {}}, names)


def _default(value: ast.expr | None) -> Any:
    if value is None:
        return None
    try:
        return ast.literal_eval(value)
    except ValueError:
        return ast.unparse(value)  # a constant's name


# ---- routes and replies ---
def _routes(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        for call in function.decorator_list:
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            verb = call.func.attr.upper()
            listed = [k.value for k in call.keywords if k.arg == "methods"]
            methods = set(ast.literal_eval(listed[0])) if listed else {verb}
            if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
                yield call.args[0].value, methods


def _function(tree: ast.Module, name: str) -> ast.AST:
    return next(n for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef) and n.name == name)


def _dict_keys(tree: ast.AST, variable: str) -> set[str]:
    """Keys that a function puts into a dict of that name, or into the one that another holds under it
    (`out["meta_info"]`): literal, `update({...})`, and item assignment."""
    names = (variable, f"['{variable}']")
    keys: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == variable:
                    keys |= _literal_keys(node.value)
                if isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith(names):
                    keys |= _strings(target.slice)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{variable}.update" and node.args:
            keys |= _literal_keys(node.args[0])
    return keys


def _literal_keys(node: ast.expr) -> set[str]:
    return set().union(*(_strings(k) for k in node.keys if k)) if isinstance(node, ast.Dict) else set()


def _strings(node: ast.expr) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def _finish_reasons(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    merged: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            pairs: dict[str, ast.expr] = {}
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    pairs[key.value] = value
            kind = pairs.get("type")
            if isinstance(kind, ast.Constant) and kind.value in ("stop", "length", "abort"):
                merged.setdefault(kind.value, set()).update(pairs)
    yield from sorted(merged.items())


if __name__ == "__main__":
    facts = record(Path(sys.argv[1]))
    target = Path(__file__).with_name(f"sglang-{facts['sglang']}.json")
    target.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    print(target.name)
