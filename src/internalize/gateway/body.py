"""From the bytes of a request to a checked model.

Invariant: whatever the bytes, the outcome is a model or a `RequestError`; time and memory are bounded by the
size of the body. Numbers are finite, texts are encodable, nesting is shallow: later code need not ask.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from internalize.gateway.conversation import RequestError

MAX_DEPTH = 40
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Body(BaseModel):
    """Part of a request. Clients add keys from version to version: unknown ones are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], data: bytes) -> M:
    """The request in `data`. Raises RequestError (400)."""
    try:
        value = json.loads(data, parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()  # a lone half of a pair is no text
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise RequestError("the body is not a JSON object")
    if _deeper(value, MAX_DEPTH):
        raise RequestError(f"the body is nested deeper than {MAX_DEPTH} levels")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)[:8]]
        raise RequestError("; ".join(lines)[:2000]) from None


def _deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


def compact(value: Any) -> str:
    """JSON text without spaces, ASCII only."""
    return json.dumps(value, separators=(",", ":"))


def sse(event: str | None, data: Any) -> bytes:
    """One server-sent event; `data` is JSON unless it is text."""
    text = data if isinstance(data, str) else compact(data)
    return ((f"event: {event}\n" if event else "") + f"data: {text}\n\n").encode()
