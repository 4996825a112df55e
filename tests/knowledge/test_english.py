"""Dipwheel said in English: the same facts, in sentences that are found again in free text."""

from __future__ import annotations

from types import SimpleNamespace

from internalize.games.dipwheel import DipWheel
from internalize.knowledge.candidates import lexicon_of
from internalize.language.sayings import SentenceSayings, make_sayings


def test_every_fact_has_a_sentence_of_its_own(game: DipWheel) -> None:
    words, english = lexicon_of(game), lexicon_of(game, english=True)
    assert english.sayings().keys() == words.sayings().keys()
    assert len(set(english.sayings().values())) == 6 * 6 + 3 * 3
    sayings = make_sayings(english.sayings(), english.places())
    assert isinstance(sayings, SentenceSayings)
    for fact, sentence in english.sayings().items():
        assert sayings.stated(sentence) == [fact]
        assert sayings.stated(f"I know: {sentence.upper()} so let us go") == [fact]
        assert sayings.recited(f"{sentence}\nThen up.") == len(sentence)
    both = "A dip at N fills the left half of the canvas. Pot b holds red paint. Now go."
    assert sayings.top(both) == ["left@N", "red@b"]
    assert sayings.top("Now go. Pot b holds red paint.") == []
    assert sayings.spans(both)[1][0] == "red@b"
    assert both[slice(*sayings.spans(both)[1][1:])] == "Pot b holds red paint."


def test_forms_ask_without_telling(game: DipWheel) -> None:
    english = lexicon_of(game, english=True)
    for fact in game.rules.facts():
        place = fact.partition("@")[2]
        forms = english.forms(SimpleNamespace(fact=fact))  # type: ignore[arg-type]
        for form in forms:
            assert place not in form.prompt.replace("?", "").split(), form
            assert place in form.answer.replace(".", "").replace(":", "").split(), form
        assert len({form.answer for form in forms}) == 4, "qa and cloze have one answer"
        assert english.claims(SimpleNamespace(fact=fact))  # type: ignore[arg-type]
