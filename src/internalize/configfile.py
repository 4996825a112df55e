"""What Snakemake's `--config` and `--configfile` ask for: the study file, its arms, overrides, steps a job.

Invariant: a study given as `--configfile` is the same as `--config study=FILE`: it is read from the file itself, by our
reader, never from Snakemake's copy of it, so both forms give one plan, and complaints name lines of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.study_errors import nearest
from internalize.study_yaml import Source, read_source

CONFIG_KEYS = ("study", "arms", "set", "steps_per_job", "site")
DEFAULT_STUDY = "config/bundled.yaml"
STUDY = "study"
SIGNS = ("name", "game", "arms")
"""Keys that a study file has and a file of config words lacks."""


@dataclass(frozen=True)
class Asked:
    """The config words, read."""

    study: Path
    arms: list[str] | None
    """Names of the arms to run; None: those that the study runs."""
    overrides: list[str]
    """Settings such as `rl.lr=2e-4`."""
    steps_per_job: int | None
    words: list[str]
    """All of them but the site, for calls of Snakemake on the same plan."""


def read_config(config: Mapping[str, Any], configfiles: Sequence[str | Path], repository: Path) -> Asked:
    """Reads Snakemake's config.

    Args:
        config: the files' keys and the command line's words, the latter going first.
        configfiles: files of `--configfile`.
        repository: folder in which a relative path is looked up when the working directory lacks it.

    Raises:
        UserError: a key is unknown or its value unusable, or there are two study files.
    """
    config = words_of(config, configfiles)
    for key in config:
        if key not in CONFIG_KEYS:
            raise UserError(
                f"unknown config key `{key}`",
                where=f"--config {key}=...",
                expected=f"one of: {', '.join(CONFIG_KEYS)}",
                fix=nearest(key, CONFIG_KEYS),
            )
    per_job = config.get("steps_per_job")
    if per_job is not None and (not isinstance(per_job, int) or isinstance(per_job, bool) or per_job < 1):
        where = f"--config steps_per_job={per_job}"
        raise UserError("`steps_per_job` has a wrong value", where=where, expected="a whole number from 1 on")
    words = [
        f"{key}={' '.join(value) if isinstance(value, list) else value}"
        for key, value in config.items()
        if key != "site"
    ]
    study = found(str(config.get(STUDY, DEFAULT_STUDY)), repository)
    return Asked(study, _split(config.get("arms")), _split(config.get("set")) or [], per_job, words)


def found(path: str, repository: Path) -> Path:
    """A relative path as it is, or below the repository when only that exists."""
    return repository / path if not Path(path).exists() and (repository / path).exists() else Path(path)


def words_of(config: Mapping[str, Any], configfiles: Sequence[str | Path]) -> dict[str, Any]:
    """The config words, with `study` for the study file among `configfiles` in place of its keys.

    Args:
        config: Snakemake's config: the files' keys and the command line's words, the latter going first.
        configfiles: files of `--configfile`; besides one study file they may hold config words.

    Raises:
        UserError: two study files.
    """
    studies = [source for path in configfiles if _is_study(source := read_source(Path(path)))]
    if not studies:
        return dict(config)
    chosen = [str(source.path) for source in studies] + ([str(config[STUDY])] if STUDY in config else [])
    if len(set(chosen)) > 1:
        raise UserError("two study files", where="--configfile", got=" and ".join(chosen), fix="name one of them")
    keys = studies[0].data
    words = {key: value for key, value in config.items() if key not in keys or _is_word(key, value)}
    return {STUDY: chosen[0], **words}


def _is_study(source: Source) -> bool:
    return all(key in source.data for key in SIGNS)


def _is_word(key: str, value: Any) -> bool:
    """Was this key of the study file given on the command line as well? Only `arms` is a word and a key."""
    return key == "arms" and not isinstance(value, Mapping)


def _split(value: Any) -> list[str] | None:
    """A config value as words: `"none recite"` and `[none, recite]` alike."""
    if value is None:
        return None
    return [str(word) for word in value] if isinstance(value, list) else str(value).split()
