"""The crate: every entity that is named is there, and the chain can be walked in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from made_study import MadeStudy

from internalize.archive.layout import CRATE, MANIFEST
from internalize.files import read_json


def references(value: Any) -> Iterator[str]:
    """Every `{"@id": ...}` in a value."""
    if isinstance(value, dict):
        if set(value) == {"@id"}:
            yield value["@id"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_every_reference_resolves_and_ids_are_unique(finished: MadeStudy) -> None:
    graph = read_json(finished.archive / CRATE)["@graph"]
    ids = [node["@id"] for node in graph]
    assert len(ids) == len(set(ids))
    inside = {one for node in graph for key, value in node.items() if key != "@id" for one in references(value)}
    outside = {one for one in inside - set(ids) if not one.startswith("https://")}
    assert outside == set()


def test_the_chain_leads_from_the_last_step_to_the_knowledge(finished: MadeStudy) -> None:
    nodes = {node["@id"]: node for node in read_json(finished.archive / CRATE)["@graph"]}
    root = nodes["./"]
    assert [one["@id"].rsplit("/", 2)[1] for one in root["conformsTo"]] == ["process", "workflow", "workflow-ro-crate"]
    made_by = {
        result["@id"]: node for node in nodes.values() if node["@type"] == "CreateAction" for result in node["result"]
    }
    at = next(node["@id"] for node in nodes.values() if node.get("name") == "step step.recite.0.0001")
    seen: set[str] = set()
    waiting = [at]
    while waiting:
        payload = waiting.pop()
        if payload not in seen:
            seen.add(payload)
            waiting += [one["@id"] for one in made_by[payload]["object"]]
    assert any(one.startswith("#payload-knowledge-") for one in seen)
    files = {node["@id"]: node for node in nodes.values() if "File" in node["@type"]}
    listed = read_json(finished.archive / MANIFEST)["files"]
    assert files["metrics/eval.jsonl"]["sha256"] == listed["metrics/eval.jsonl"]["sha256"]
    assert set(listed) - set(files) == {CRATE, "README.md"}  # written after it
