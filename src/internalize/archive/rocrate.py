"""The receipts' chain as a Workflow Run RO-Crate (`ro-crate-metadata.json`), for tools that read no receipts.

Invariant: every entity that another names is in the file; every receipt is one `CreateAction` from the payloads of its
parents to its own payload, and every file of the archive is a `File` with its SHA-256. No times: receipts have none.

Follows RO-Crate 1.1 and the profiles Process Run Crate and Workflow Run Crate 0.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from internalize.archive.layout import CRATE
from internalize.archive.manifest import Manifest
from internalize.receipts import Receipt

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
TERMS = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
LANGUAGE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
WORKFLOW = "state/workflow/Snakefile"

Node = dict[str, Any]


def crate(spec: Mapping[str, Any], receipts: Iterable[Receipt], manifest: Manifest) -> Node:
    """The crate as JSON-LD."""
    known = {receipt.hash(): receipt for receipt in receipts}
    made: dict[str, list[str]] = {}
    for path, file in sorted(manifest.files.items()):
        made.setdefault(file.receipt or "", []).append(path)
    stages = sorted({receipt.stage for receipt in known.values()})
    nodes = [_descriptor(), _root(spec, manifest, known), *(_profile(profile) for profile in PROFILES)]
    nodes += [_language()] + ([_workflow(spec)] if WORKFLOW in manifest.files else [])
    nodes += [
        {"@id": f"#stage-{stage}", "@type": "SoftwareApplication", "name": f"internalize {stage}"} for stage in stages
    ]
    for digest, receipt in sorted(known.items(), key=lambda item: (item[1].stage, item[1].name, item[0])):
        nodes += _action(digest, receipt, known, made.get(digest, []))
    nodes += [
        {
            "@id": path,
            "@type": "File",
            "contentSize": str(file.bytes),
            "encodingFormat": file.media_type,
            "sha256": file.sha256,
        }
        for path, file in sorted(manifest.files.items())
        if path != WORKFLOW
    ]
    return {"@context": [CONTEXT, TERMS], "@graph": nodes}


def _descriptor() -> Node:
    return {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": [{"@id": "https://w3id.org/ro/crate/1.1"}, {"@id": PROFILES[2]}],
    }


def _root(spec: Mapping[str, Any], manifest: Manifest, known: Mapping[str, Receipt]) -> Node:
    actions = sorted(_id("run", receipt) for receipt in known.values())
    root: Node = {
        "@id": "./",
        "@type": "Dataset",
        "name": spec["archive"].get("title") or spec["name"],
        "description": spec["archive"].get("about") or f"Everything that the study {spec['name']} left behind.",
        "license": spec["archive"]["licence"],
        "conformsTo": [{"@id": profile} for profile in PROFILES],
        "hasPart": [{"@id": path} for path in sorted(manifest.files)],
        "mentions": [{"@id": action} for action in actions],
    }
    return root | ({"mainEntity": {"@id": WORKFLOW}} if WORKFLOW in manifest.files else {})


def _profile(profile: str) -> Node:
    name, version = profile.split("/")[-2:]
    return {"@id": profile, "@type": "CreativeWork", "name": name, "version": version}


def _language() -> Node:
    url = {"@id": "https://snakemake.github.io"}
    return {"@id": LANGUAGE, "@type": "ComputerLanguage", "name": "Snakemake", "url": url}


def _workflow(spec: Mapping[str, Any]) -> Node:
    kinds = ["File", "SoftwareSourceCode", "ComputationalWorkflow"]
    name = f"{spec['name']}: from knowledge to weights"
    return {"@id": WORKFLOW, "@type": kinds, "name": name, "programmingLanguage": {"@id": LANGUAGE}}


def _action(digest: str, receipt: Receipt, known: Mapping[str, Receipt], files: list[str]) -> list[Node]:
    parents = sorted({_id("payload", known[parent]) for parent in receipt.parents.values() if parent in known})
    action: Node = {
        "@id": _id("run", receipt),
        "@type": "CreateAction",
        "name": receipt.name,
        "instrument": {"@id": f"#stage-{receipt.stage}"},
        "object": [{"@id": parent} for parent in parents],
        "result": [{"@id": _id("payload", receipt)}],
        "actionStatus": "http://schema.org/CompletedActionStatus",
    }
    payload: Node = {
        "@id": _id("payload", receipt),
        "@type": "Dataset",
        "name": f"{receipt.stage} {receipt.name}",
        "identifier": digest,
        "contentSize": str(receipt.payload_bytes()),
        "hasPart": [{"@id": path} for path in files],
    }
    return [action, payload]


def _id(kind: str, receipt: Receipt) -> str:
    return f"#{kind}-{receipt.stage}-{receipt.key[:16]}"
