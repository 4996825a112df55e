"""The dialogue of a model folder: which tokenizer lies there decides.

Invariant: nothing but the folder and the game is asked, so a study cannot name a tokenizer that the model has not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from internalize.errors import UserError
from internalize.files import read_json
from internalize.language import markup
from internalize.language.calls import CallTable
from internalize.language.dialogue import Dialogue
from internalize.language.template import Template
from internalize.language.vocabulary import Vocabulary

if TYPE_CHECKING:
    from internalize.games.protocol import Game


def load_dialogue(folder: Path, game: Game | None = None) -> Dialogue:
    """The folder's dialogue.

    Args:
        game: whose calls a reply can make; the bundled game's if None.

    Raises:
        UserError: there is no tokenizer, or one that cannot be used.
    """
    if _is_closed(folder):
        return Template(Vocabulary.load(folder), CallTable(game.call_words()) if game is not None else None)
    if game is None:
        raise UserError("a model with an open vocabulary needs a game to talk about", where=str(folder))
    from internalize.language.chat import ChatTemplate

    return ChatTemplate.load(folder, CallTable(game.call_words(), spelled=True), game.legend())


def _is_closed(folder: Path) -> bool:
    """Is this a vocabulary that `Vocabulary.write` has written?"""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UserError("the model folder has no tokenizer", where=str(path))
    data = read_json(path)
    special = [token.get("content") for token in data.get("added_tokens", [])]
    kind: str = data.get("model", {}).get("type") or ""
    return kind == "WordLevel" and special[: len(markup.SPECIALS)] == list(markup.SPECIALS)
