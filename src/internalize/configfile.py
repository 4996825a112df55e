"""A study file given as Snakemake's `--configfile`: the same as `--config study=FILE`.

Invariant: the study is read from the file itself, by our reader, never from Snakemake's copy of it, so both forms give
one plan, and complaints name lines of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.study_yaml import Source, read_source

STUDY = "study"
SIGNS = ("name", "game", "arms")
"""Keys that a study file has and a file of config words lacks."""


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
