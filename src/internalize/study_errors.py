"""From pydantic's complaints to one clear `StudyError`.

Invariant: the error names the place in the user's file, what stands there, what could stand there, and, for a
misspelt word, the nearest right one.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from internalize.errors import StudyError
from internalize.study_yaml import KeyPath, Source, dotted

URGENCY = ("extra_forbidden", "union_tag_invalid", "literal_error", "missing")
"""A misspelt key often leaves a `missing` one behind: the misspelling is the news."""


def study_error(
    model: type[BaseModel], error: ValidationError, source: Source, *, below: KeyPath = (), data: Any = None
) -> StudyError:
    """The most telling complaint of a failed validation.

    Args:
        model: the model that was validated.
        error: what pydantic found.
        source: the file, for lines.
        below: key path of the validated data in the file.
        data: the validated data; the file's data unless given.
    """
    data = source.data if data is None else data
    details = sorted(error.errors(include_url=False), key=_urgency)
    first = details[0]
    keys = _keys(first, data)
    known = _fields_at(model, data, keys[:-1]) if keys else []
    what, expected, got, fix = _words(first, keys, known)
    if keys and keys[0] == "arms" and len(keys) > 1:
        what = f"arm `{keys[1]}`: {what}"
    elif below:
        what = f"arm `{below[-1]}`: {what}"
    if len(details) > 1:
        fix = f"{fix} ({len(details) - 1} more to follow)".strip()
    return StudyError(what, where=source.where((*below, *keys)), expected=expected, got=got, fix=fix)


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?`, or nothing when no known word is near."""
    close = difflib.get_close_matches(word, [str(k) for k in known], n=1, cutoff=0.5)
    return f"did you mean `{close[0]}`?" if close else ""


def _urgency(detail: ErrorDetails) -> int:
    kind = detail["type"]
    return URGENCY.index(kind) if kind in URGENCY[:-1] else len(URGENCY) + (kind == "missing")


def _words(detail: ErrorDetails, keys: KeyPath, known: list[str]) -> tuple[str, str, str, str]:
    """What, expected, got and fix of one complaint."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    key = str(keys[-1]) if keys else ""
    match kind:
        case "extra_forbidden":
            return f"unknown key `{key}`", _one_of(known), f"{key}: {_short(value)}", nearest(key, known)
        case "missing":
            place = dotted(keys[:-1]) or "the study"
            return f"the key `{key}` is missing", f"`{key}` in {place}", "", f"add `{key}: ...`"
        case "union_tag_invalid":
            tag, tags = str(context["tag"]), _listed(context["expected_tags"])
            word = _discriminator(context)
            return f"unknown {word} `{tag}`", _one_of(tags), f"{word}: {tag}", nearest(tag, tags)
        case "union_tag_not_found":
            return (
                "the key `type` is missing",
                "a `type` that says which kind this is",
                _short(value),
                "add `type`",
            )
        case "literal_error":
            words = _listed(context["expected"])
            return (
                f"`{value}` is not possible for `{key}`",
                _one_of(words),
                _short(value),
                nearest(str(value), words),
            )
        case "string_pattern_mismatch":
            expected = "letters, digits, hyphens and underscores, a lower-case letter first"
            return f"`{value}` cannot be a name", expected, _short(value), "rename it"
    expected = detail["msg"]
    for opening in ("Value error, ", "Input should be ", "must be "):
        expected = expected.removeprefix(opening)
    return f"`{key}` has a wrong value", expected, f"{_short(value)} ({_kind(value)})", ""


def _discriminator(context: Any) -> str:
    """The key that says which model of a union is meant."""
    return "kind" if context.get("discriminator") == "'kind'" else "type"


def _one_of(words: list[str]) -> str:
    return f"one of: {', '.join(words)}"


def _listed(text: Any) -> list[str]:
    """pydantic's `'a', 'b' or 'c'` as a list."""
    return [word.strip().strip("'") for word in str(text).replace(" or ", ", ").split(",")]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return "nothing" if value is None else names.get(type(value), "a mapping")


def _keys(detail: ErrorDetails, data: Any) -> KeyPath:
    """The error's location without the union tags that pydantic puts between the keys."""
    keys: list[str | int] = []
    location = detail["loc"]
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if part == "[key]":
            continue
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if inside:
            data = data[part]
        elif not (last and detail["type"] == "missing"):
            continue
        keys.append(part)
    if detail["type"] == "union_tag_invalid":
        keys.append(_discriminator(detail["ctx"]))
    return tuple(keys)


def _fields_at(model: Any, data: Any, keys: Sequence[Any]) -> list[str]:
    """Names of the keys that could stand at a key path."""
    kinds = _models(model, data)
    for key in keys:
        data = data[key]
        inner: list[Any] = []
        for kind in kinds:
            if _is_model(kind):
                inner += [kind.model_fields[key].annotation] if key in kind.model_fields else []
            else:
                inner += get_args(kind)[-1:]
        kinds = [member for kind in inner for member in _models(kind, data)]
    return list(dict.fromkeys(name for kind in kinds if _is_model(kind) for name in kind.model_fields))


def _models(kind: Any, data: Any) -> list[Any]:
    """The models and containers inside an annotation; of a tagged union, the one that `type` names."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _models(get_args(kind)[0], data)
    if origin in (Union, types.UnionType):
        members = [m for arg in get_args(kind) for m in _models(arg, data)]
        tag = data.get("type", data.get("kind")) if isinstance(data, dict) else None
        tagged = [member for member in members if _is_model(member) and _tag(member) == tag]
        return tagged or members
    if origin in (dict, list) or _is_model(kind):
        return [kind]
    return []


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("type") or model.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field is not None else None
