"""From a HF model folder to something that plays.

Invariant: the engine holds exactly the tensors of the folder (as fp32), and the template renders with the
folder's own vocabulary; harvests, gates, evals and arms all start here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.errors import UserError
from internalize.files import read_json
from internalize.games.protocol import Game
from internalize.language.calls import CallTable
from internalize.language.template import Template
from internalize.language.vocabulary import Vocabulary


def load_engine(
    folder: Path, slots: int = 128, max_len: int = 512, game: Game | None = None
) -> tuple[LocalEngine, Template, dict[str, Any]]:
    """Engine with the folder's weights (version: the first 12 hex digits of their hash), template and
    `config.json`.

    Args:
        game: whose call words the template knows; the bundled game's if None.

    Raises:
        UserError: vocabulary and model do not fit, or the engine cannot run this architecture.
    """
    template, config = load_template(folder, game)
    return ModelFolder(folder).engine(slots, max_len), template, config


def load_template(folder: Path, game: Game | None = None) -> tuple[Template, dict[str, Any]]:
    """The template over the folder's vocabulary, and `config.json`.

    Raises:
        UserError: vocabulary and model do not fit.
    """
    config: dict[str, Any] = read_json(folder / "config.json")
    vocab = Vocabulary.load(folder)
    if len(vocab) > int(config.get("vocab_size", 0)):
        raise UserError(
            "the vocabulary is larger than the model's",
            where=str(folder),
            expected=f"at most {config.get('vocab_size')} tokens",
            got=str(len(vocab)),
        )
    return Template(vocab, CallTable(game.call_words()) if game is not None else None), config
