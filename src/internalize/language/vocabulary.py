"""A closed word-level vocabulary.

Invariant: text is words separated by whitespace, one word is one token, and `decode(encode(text))` gives the
words back unless a word is outside the vocabulary; such a word becomes `<unk>` and is counted in `unknown`.
The files that `write` leaves behind give equal ids in `transformers.PreTrainedTokenizerFast`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.files import digest, write_json
from internalize.language import markup


class Vocabulary:
    """Words and their ids. `tokens[i]` is the word of id `i`; `unknown` counts the words mapped to `<unk>` so
    far."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens: tuple[str, ...] = tuple(tokens)
        self.unknown = 0
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._unk = markup.SPECIALS.index(markup.UNK)
        if self.tokens[: len(markup.SPECIALS)] != markup.SPECIALS:
            raise UserError(
                "the vocabulary does not begin with the special tokens",
                expected=" ".join(markup.SPECIALS),
                got=" ".join(self.tokens[: len(markup.SPECIALS)]),
            )
        if len(self._ids) != len(self.tokens):
            twice = sorted({token for token in self.tokens if self.tokens.count(token) > 1})
            raise UserError("the vocabulary has a word twice", got=" ".join(twice))
        broken = [token for token in self.tokens if not token or token.split() != [token]]
        if broken:
            raise UserError("a vocabulary word is empty or has a space in it", got=repr(broken[0]))

    @classmethod
    def of(cls, words: Iterable[str]) -> Vocabulary:
        """Special tokens first, then `words` in their order; a word named twice keeps its first place."""
        return cls(tuple(dict.fromkeys((*markup.SPECIALS, *words))))

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def id(self, token: str) -> int:
        """Id of a word that must be in the vocabulary; KeyError otherwise."""
        return self._ids[token]

    def encode(self, text: str) -> list[int]:
        """Ids of the words of `text`; words outside the vocabulary become `<unk>` and raise `unknown`."""
        ids = [self._ids.get(word, -1) for word in text.split()]
        missing = ids.count(-1)
        if missing:
            self.unknown += missing
            ids = [self._unk if index < 0 else index for index in ids]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Words of `ids`, one space between them; IndexError for an id outside the vocabulary."""
        return " ".join([self.tokens[index] for index in ids])

    def digest(self) -> str:
        """SHA-256 (hex) of the ordered words."""
        return digest(list(self.tokens))

    def write(self, folder: Path) -> None:
        """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json as the HF libraries read
        them."""
        roles = {"pad_token": markup.PAD, "unk_token": markup.UNK, "eos_token": markup.END}
        write_json(folder / "tokenizer.json", self._tokenizer())
        write_json(
            folder / "tokenizer_config.json",
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "chat_template": markup.CHAT_TEMPLATE,
                "clean_up_tokenization_spaces": False,
                "model_max_length": 512,
                **roles,
            },
        )
        write_json(folder / "special_tokens_map.json", roles)

    @classmethod
    def load(cls, folder: Path) -> Vocabulary:
        """The vocabulary of a folder written by `write`; UserError if the file is missing or damaged."""
        path = folder / "tokenizer.json"
        try:
            words: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
            ordered = sorted(words, key=lambda word: words[word])
            dense = [words[word] for word in ordered] == list(range(len(ordered)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError("can't read the tokenizer", where=str(path), got=str(error)) from error
        if not dense:
            raise UserError("the ids of the tokenizer are not 0 .. n-1", where=str(path))
        return cls(ordered)

    def _tokenizer(self) -> dict[str, Any]:
        special = {
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": i, "content": token, **special} for i, token in enumerate(markup.SPECIALS)],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": dict(self._ids), "unk_token": markup.UNK},
        }
