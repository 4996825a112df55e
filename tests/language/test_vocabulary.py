from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import UserError
from internalize.games.dipwheel.text import words as game_words
from internalize.language.markup import SPECIALS
from internalize.language.vocabulary import Vocabulary

WORDS = game_words()


def test_specials_come_first_and_words_keep_their_order() -> None:
    vocab = Vocabulary.of(["need", "left@N", "need"])
    assert vocab.tokens == (*SPECIALS, "need", "left@N")
    assert vocab.tokens[:8] == ("<pad>", "<unk>", "<u>", "<a>", "<end>", "</think>", "<call>", "<say>")
    assert (len(vocab), vocab.id("<end>"), vocab.id("left@N")) == (10, 4, 9)
    assert "need" in vocab
    assert "dry" not in vocab


def test_the_games_vocabulary_is_small() -> None:
    assert len(Vocabulary.of(WORDS)) == 102


@settings(deadline=None)
@given(st.lists(st.sampled_from((*SPECIALS, *WORDS)), max_size=30), st.sampled_from((" ", "\n", " \t ")))
def test_decode_gives_the_words_back(words: list[str], gap: str) -> None:
    vocab = Vocabulary.of(WORDS)
    assert vocab.decode(vocab.encode(gap.join(words))) == " ".join(words)
    assert vocab.unknown == 0


def test_unknown_words_become_unk_and_are_counted() -> None:
    vocab = Vocabulary.of(WORDS)
    assert vocab.decode(vocab.encode("need Left purple left@N")) == "need <unk> <unk> left@N"
    assert vocab.unknown == 2
    vocab.encode("purple")
    assert vocab.unknown == 3
    with pytest.raises(KeyError):
        vocab.id("purple")


def test_digest_depends_on_the_order() -> None:
    assert Vocabulary.of(WORDS).digest() == Vocabulary.of(WORDS).digest()
    assert Vocabulary.of(WORDS).digest() != Vocabulary.of(WORDS[::-1]).digest()


@pytest.mark.parametrize(
    ("tokens", "what"),
    [
        (("need",), "begin with the special tokens"),
        ((*SPECIALS, "need", "need"), "twice"),
        ((*SPECIALS, "left at"), "space"),
        ((*SPECIALS, ""), "empty"),
    ],
)
def test_broken_vocabularies_are_refused(tokens: tuple[str, ...], what: str) -> None:
    with pytest.raises(UserError, match=what):
        Vocabulary(tokens)


def test_files_restore_the_vocabulary(tmp_path: Path) -> None:
    vocab = Vocabulary.of(WORDS)
    vocab.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
    }
    restored = Vocabulary.load(tmp_path)
    assert restored.tokens == vocab.tokens
    assert restored.digest() == vocab.digest()


@pytest.mark.parametrize("damage", ["missing", "text", "list", "gap", "no model"])
def test_damaged_files_are_user_errors(tmp_path: Path, damage: str) -> None:
    vocab = Vocabulary.of(WORDS)
    vocab.write(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    if damage == "missing":
        path.unlink()
    elif damage == "text":
        path.write_text("{")
    elif damage == "list":
        path.write_text("[]")
    elif damage == "gap":
        content["model"]["vocab"]["need"] = 999
        path.write_text(json.dumps(content))
    else:
        path.write_text("{}")
    with pytest.raises(UserError, match="tokenizer") as caught:
        Vocabulary.load(tmp_path)
    assert "tokenizer.json" in caught.value.where
