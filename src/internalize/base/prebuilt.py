"""The folder of a base: what lies in it, and whether a shipped one may stand in for training.

Invariant: a shipped base is used only if every file of it has the hash that its provenance states and if
it is what the study's own recipe would train: same game, same vocabulary, same held-out stations, same
recipe. Damage is an error; a difference means training. No torch here: the workflow reads provenance while
it is parsed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from internalize.base.recipe import Recipe
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import read_json, sha256_file

PROVENANCE = "provenance.json"
WEIGHTS = "model.safetensors"
FILES = (
    "config.json",
    "generation_config.json",
    WEIGHTS,
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


class Provenance(BaseModel):
    """Where a base comes from. Everything above `cost` is determined by recipe, game and torch build."""

    model_config = ConfigDict(extra="forbid")
    format: int = 1
    command: str
    """What makes it again."""
    game: str
    """Name of the game."""
    held_out: dict[str, str]
    """Station -> region of the rule set that meta-training never drew, whatever its pots."""
    vocabulary: str
    """Digest of the vocabulary (ordered words)."""
    recipe: dict[str, Any]
    """Every setting of the training."""
    parameters: int
    """Number of trained numbers."""
    steps: int
    """Optimizer steps taken."""
    checks: list[dict[str, Any]]
    """Play on the held-out rules during training: step, then `teacher_*` and `base_*` figures."""
    torch: str
    """Version of torch."""
    threads: int
    """Compute threads of the training."""
    files: dict[str, str]
    """File name -> SHA-256."""
    gate: dict[str, Any] | None = None
    """Gate figures of a shipped base; a base made by the DAG has its own gate stage."""
    cost: dict[str, float] | None = None
    """CPU seconds of a shipped base's training; a DAG writes them to `run.json`."""
    git_commit: str | None = None
    """Commit of the code that made a shipped base; null until it was committed."""
    note: str = ""
    """What else a reader should know, for example which seeds were tried."""


def read_provenance(folder: Path) -> Provenance:
    """The provenance of a base folder.

    Raises:
        MissingPayload: there is none.
        CorruptPayload: it is not one.
    """
    path = folder / PROVENANCE
    if not path.exists():
        raise MissingPayload(
            "no prebuilt base here",
            where=str(path),
            expected="a folder with provenance.json, as `internalize base --rebuild` writes it",
            fix="run from the repository's root, or set base.prebuilt to null to train one (4 CPU minutes)",
        )
    try:
        return Provenance.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise CorruptPayload(
            f"not a provenance file: {first['msg']} at {'.'.join(map(str, first['loc']))}",
            where=str(path),
            fix="restore the file from version control, or run `internalize base --rebuild`",
        ) from error


def prebuilt_digest(folder: Path) -> str:
    """SHA-256 of the provenance file: it states every other file's hash, so it stands for the whole
    folder."""
    read_provenance(folder)
    return sha256_file(folder / PROVENANCE)


def verify_files(folder: Path, provenance: Provenance) -> None:
    """Check every file against its stated hash; MissingPayload or CorruptPayload names the first that
    differs."""
    fix = "restore the folder from version control, or run `internalize base --rebuild`"
    for name in FILES:
        path = folder / name
        if not path.exists():
            raise MissingPayload("the prebuilt base lacks a file", where=str(path), fix=fix)
        expected, got = provenance.files.get(name, "no hash"), sha256_file(path)
        if expected != got:
            raise CorruptPayload(
                "a file of the prebuilt base is not the one that its provenance speaks of",
                where=str(path),
                expected=f"sha256 {expected}",
                got=f"sha256 {got}",
                fix=fix,
            )


def difference(provenance: Provenance, game: str, held_out: dict[str, str], vocabulary: str, recipe: Recipe) -> str:
    """Why the base can't stand in for training under these settings, as one sentence; empty if it can."""
    if provenance.game != game:
        return f"it was made for the game {provenance.game}, the study plays {game}"
    if provenance.held_out != held_out:
        return "its training may have seen the study's rules: it held out other stations"
    if provenance.vocabulary != vocabulary:
        return "the vocabulary of the game has changed since it was made"
    ours = recipe.plain()
    changed = sorted(key for key in ours if ours[key] != provenance.recipe.get(key, ...))
    if changed or provenance.recipe.keys() != ours.keys():
        return f"the study's recipe differs from its own in {', '.join(changed) or 'its keys'}"
    return ""
