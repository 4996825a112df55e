"""A printed Python dictionary as values, without running it.

Invariant: only literals and the few names that metrics are printed with (`nan`, `inf`, `np.float64(...)`,
`tensor(...)`) are understood; everything else is refused, never evaluated.
"""

from __future__ import annotations

import ast
import math
from typing import Any

NUMBERS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
WRAPPERS = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "bool_", "float", "int", "tensor", "array")
)
"""Calls that wrap one value: `np.float64(0.5)`, `float('nan')`, `tensor(0.5, device='cuda:0')`."""


def read_dict(text: str) -> dict[str, Any]:
    """The dictionary that `text` prints.

    Raises:
        ValueError: it is cut off, no dictionary, or holds something else than values.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a dictionary: {error}") from error
    found = _value(tree.body)
    if not isinstance(found, dict):
        raise ValueError("not a dictionary")
    return {str(key): value for key, value in found.items()}


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Dict(keys=keys, values=values):
            if any(key is None for key in keys):
                raise ValueError("`**` in a dictionary")
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _number(operand)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.lower() in NUMBERS:
            return NUMBERS[name.lower()]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[inner, *_]) if name in WRAPPERS:
            value = _value(inner)
            return float(value) if isinstance(value, str) else value
    raise ValueError(f"not a value: {ast.unparse(node)[:40]}")


def _number(node: ast.expr) -> float:
    value = _value(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number: {ast.unparse(node)[:40]}")
    return value
