"""Model repositories: one folder a converted iteration, with a card that says what the policy is.

Invariant: the weights are the conversion's own files, by hard links; the card's numbers are those of the archive's
tables; each folder has manifests of its own, whose receipts the archive's chain leads back to the knowledge set.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from internalize.archive.inventory import Model, models
from internalize.archive.layout import README
from internalize.archive.manifest import Manifest, entry, write_manifests
from internalize.files import link, sha256_file, write_text
from internalize.proportion import wilson
from internalize.receipts import Receipt
from internalize.store import Store


def assemble_models(
    folder: Path,
    spec: Mapping[str, Any],
    receipts: Mapping[str, Receipt],
    checkpoints: Sequence[Mapping[str, Any]],
    store: Store,
) -> list[str]:
    """Puts one folder a converted iteration below `folder`; the repositories' names. None converted: no folder.

    Args:
        checkpoints: rows of the `checkpoints` table, for the cards.
    """
    found = models(spec, receipts)
    partial = folder.with_name(f".{folder.name}.partial")
    for old in (partial, *([] if found else [folder])):  # what an earlier study had converted is not this one's
        if old.exists():
            shutil.rmtree(old)
    rows = {(row["arm"], row["seed"], row["iteration"]): row for row in checkpoints}
    for model in found:
        row = rows.get((model.run.arm, model.run.seed, model.step), {})
        _assemble(partial / model.repository, spec, model, row, store)
    return [model.repository for model in found]


def _assemble(root: Path, spec: Mapping[str, Any], model: Model, row: Mapping[str, Any], store: Store) -> None:
    digest = model.receipt.hash()
    manifest = Manifest(study=spec["name"], files={})
    for file in model.receipt.files:
        link(store.root / model.receipt.entry / file.path, root / file.path)
        manifest.files[file.path] = entry(file.sha256, file.bytes, file.path, digest)
    write_text(root / README, model_card(spec, model, row))
    manifest.files[README] = entry(sha256_file(root / README), (root / README).stat().st_size, README, None)
    write_manifests(root, manifest)


def model_card(spec: Mapping[str, Any], model: Model, row: Mapping[str, Any]) -> str:
    """The card: what was trained for how long, and how the policy plays."""
    settings = spec["archive"]
    arm = spec["arms"][model.run.arm]
    front: dict[str, Any] = {
        "license": settings["licence"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["reinforcement-learning", "knowledge", spec["name"]],
    }
    if settings.get("dataset"):
        front["datasets"] = [settings["dataset"]]
    base = spec["study"]["base"]
    if base.get("repo"):
        front["base_model"] = base["repo"]
    phases = arm["phases"][: model.step + 1]
    counted = {name: phases.count(word) for word, name in NAMES.items() if word in phases}
    done = [f"{count} {name} step{'s' if count > 1 else ''}" for name, count in counted.items()]
    text = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---\n",
        f"# {model.repository}\n",
        f"The policy of arm `{model.run.arm}`, seed {model.run.seed}, after iteration {model.step}: {', '.join(done)}.",
        f"{arm['note']}\n" if arm["note"] else "",
        f"- rows: {arm['rows'] or 'none'}; schedule: {arm['schedule']}; phases so far: {', '.join(phases)}",
        f"- {'SFT only: no RL has touched it' if row.get('sft_only') else 'RL has trained it'}",
    ]
    if row.get("return_mean") is not None:
        low, high = wilson(row["clears"], row["episodes"])
        text.append(
            f"- in the eval of this iteration: mean shaped return {row['return_mean']:+.3f}, "
            f"{row['clears']}/{row['episodes']} episodes cleared (95 %: {low:.0%} to {high:.0%})"
        )
    if row.get("nll_trained") is not None:
        text.append(f"- NLL a token of the trained facts: {row['nll_trained']:.4g}")
    if row.get("cite_weight") not in (None, 1.0):
        text.append(f"- cite weight of this step: {row['cite_weight']:g}")
    where = f"the dataset `{settings['dataset']}`" if settings.get("dataset") else "the study's archive"
    text.append(
        f"\nHow it came to be, with every episode, batch and receipt, is in {where}: run `{model.run.name}`. "
        f"The conversion's receipt is `{model.receipt.hash()}`. `MANIFEST.sha256` hashes every file here.\n\n"
        "One game and one base: an interval over seeds says nothing about others. Optimizer moments are not "
        "published.\n"
    )
    return "\n".join(part for part in text if part)


NAMES = {"sft": "SFT", "rl": "RL", "joint": "joint"}
