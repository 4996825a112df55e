"""The base stage: the shipped base if it is what the study asks for, a base trained from scratch otherwise.

Invariant: the payload is the same kind of folder in both cases, and its provenance says which it was and
how to make it again. A damaged shipped base is an error, never a silent training run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.base.prebuilt import (
    FILES,
    PROVENANCE,
    WEIGHTS,
    Provenance,
    difference,
    prebuilt_digest,
    read_provenance,
    verify_files,
)
from internalize.base.recipe import Recipe
from internalize.errors import CorruptPayload, StudyError
from internalize.files import commit, sha256_file, write_json
from internalize.games import make_game
from internalize.games.dipwheel import DipWheel
from internalize.games.dipwheel.rules import STATIONS
from internalize.language.template import Template
from internalize.store import Input

COMMAND = "internalize base --rebuild"

Progress = Callable[[str], None]


def build(folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Progress) -> dict[str, Any]:
    """Writes a Hugging Face folder with provenance.json; facts: which, why, sha256 (weights), vocabulary,
    parameters, steps.

    Args:
        spec: `game` (kind and its settings), `prebuilt` (folder or null), `recipe`, and optionally
            `prebuilt_digest`, which makes another shipped base another store key.
        inputs: none are used.

    Raises:
        UserError: the shipped base is missing or damaged, or the game is not one that a base can be
            trained for.
    """
    game = dipwheel(spec["game"])
    recipe = Recipe.model_validate(spec["recipe"])
    template = Template.of(game)
    shipped = spec.get("prebuilt")
    why = "the study asks for training (base.prebuilt is null)"
    if shipped is not None:
        source = found(shipped)
        provenance = read_provenance(source)
        why = difference(provenance, game.name, held_out(game), template.vocab.digest(), recipe)
        if not why:
            _copy(source, provenance, folder, spec.get("prebuilt_digest"))
            progress(f"base: the shipped one, sha256 {provenance.files[WEIGHTS][:12]}")
            return _facts("prebuilt", "", provenance)
        why = f"the shipped base can't be used: {why}"
    progress(f"base: training from scratch for about {recipe.steps / 500:.0f} CPU minutes ({why})")
    provenance = train(folder, recipe, game, template, progress)
    return _facts("trained", why, provenance)


def found(shipped: str) -> Path:
    """The folder itself, or the one below the repository that the workflow runs from (INTERNALIZE_HOME)."""
    path = Path(shipped)
    return path if path.exists() else Path(os.environ.get("INTERNALIZE_HOME", ".")) / path


def dipwheel(settings: dict[str, Any]) -> DipWheel:
    """The game of the study; meta-training needs other rule sets of the same game, which only Dipwheel
    offers."""
    game = make_game(**settings)
    if not isinstance(game, DipWheel):
        raise StudyError("no base can be trained for this game", where="game.kind", got=game.name, expected="dipwheel")
    return game


def held_out(game: DipWheel) -> dict[str, str]:
    """Station -> region of the rules that meta-training must not draw."""
    return dict(zip(STATIONS, game.rules.regions, strict=True))


def train(folder: Path, recipe: Recipe, game: DipWheel, template: Template, progress: Progress) -> Provenance:
    """Train a base into `folder` and write its provenance (without gate and cost)."""
    import torch  # here, so that a shipped base costs no import of torch and Megatron
    from safetensors.torch import save_file

    from internalize.base.pretrain import pretrain

    trained = pretrain(recipe, game, template, lambda row: progress("base: " + _line(row)))
    write_json(folder / "config.json", trained.config)
    generation = {
        "do_sample": True,
        "temperature": 1.0,
        "eos_token_id": template.stop_id,
        "pad_token_id": trained.config["pad_token_id"],
    }
    write_json(folder / "generation_config.json", generation)
    template.vocab.write(folder)
    state = {name: tensor.contiguous() for name, tensor in sorted(trained.state.items())}
    commit(folder / WEIGHTS, lambda path: save_file(state, path, metadata={"format": "pt"}))
    (folder / WEIGHTS).chmod(0o644)  # safetensors makes it private
    provenance = Provenance(
        command=COMMAND,
        game=game.name,
        held_out=held_out(game),
        vocabulary=template.vocab.digest(),
        recipe=recipe.plain(),
        parameters=sum(tensor.numel() for tensor in state.values()),
        steps=trained.steps,
        checks=[check.row() for check in trained.checks],
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        files={name: sha256_file(folder / name) for name in FILES},
    )
    write_json(folder / PROVENANCE, provenance.model_dump())
    return provenance


def _copy(source: Path, provenance: Provenance, folder: Path, expected: str | None) -> None:
    verify_files(source, provenance)
    if expected is not None and prebuilt_digest(source) != expected:
        raise CorruptPayload(
            "the shipped base changed since the workflow was read",
            where=str(source / PROVENANCE),
            expected=f"sha256 {expected}",
            got=f"sha256 {prebuilt_digest(source)}",
            fix="run the study again",
        )
    for name in (*FILES, PROVENANCE):
        shutil.copyfile(source / name, folder / name)


def _facts(which: str, why: str, provenance: Provenance) -> dict[str, Any]:
    return {
        "which": which,
        "why": why,
        "sha256": provenance.files[WEIGHTS],
        "vocabulary": provenance.vocabulary,
        "parameters": provenance.parameters,
        "steps": provenance.steps,
    }


def _line(row: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.items())
