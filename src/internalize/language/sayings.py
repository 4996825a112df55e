"""How facts are said to a model, and found in what it says.

A fact is a word `subject@place` in every record. A closed vocabulary says that very word; a model with an open one is
told a sentence. Which it is stands in the knowledge set (`sayings.json`), so no stage asks which game it is.

Invariant: `stated(say(fact)) == [fact]`, for true facts and for false ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from internalize.files import read_json, write_json

FILE = "sayings.json"
NEED, DRY = "need", "dry"
Span = tuple[str, int, int]
"""A fact and the characters that state it."""


def subject_of(fact: str) -> str:
    """`left` of `left@N`."""
    return fact.partition("@")[0]


def place_of(fact: str) -> str:
    """`N` of `left@N`."""
    return fact.partition("@")[2]


class Sayings(Protocol):
    """The wordings of one knowledge set's facts."""

    @property
    def facts(self) -> Collection[str]:
        """Every fact that can be said, true or false."""

    @property
    def places(self) -> Sequence[Sequence[str]]:
        """Groups of places; a fact is mistaken for one about another place of its group."""

    def say(self, fact: str) -> str:
        """The fact as a think states it."""

    def name(self, part: str) -> str:
        """A subject or place as texts name it."""

    def stated(self, text: str) -> list[str]:
        """The facts, true or false, that a text states in the wording of thinks, in order."""

    def spans(self, text: str) -> list[Span]:
        """Where facts are stated, in any wording that can be told from other text, in order."""

    def reworded(self, text: str) -> list[str]:
        """The facts that a text states in another wording."""

    def top(self, think: str) -> list[str]:
        """The facts that a think opens with, before it turns to the case at hand."""

    def recited(self, think: str) -> int:
        """Characters of a think up to the end of its opening recital."""

    def wanted(self, need: Sequence[str]) -> list[str]:
        """The words in which thinks name what they need; none where thinks are free."""


class WordSayings:
    """One word a fact: `left@N`; in the other wording three, `left at N`."""

    def __init__(self, facts: Collection[str], places: Sequence[Sequence[str]] = ()) -> None:
        self.facts = frozenset(facts)
        self.places = tuple(map(tuple, places))

    def say(self, fact: str) -> str:
        return fact

    def name(self, part: str) -> str:
        return part

    def stated(self, text: str) -> list[str]:
        return [word for word in text.split() if _is_fact(word)]

    def spans(self, text: str) -> list[Span]:
        words = _words(text)
        return sorted([*(one for one in words if _is_fact(one[0])), *self._others(words)], key=lambda one: one[1])

    def reworded(self, text: str) -> list[str]:
        if " at " not in text:  # thinks by the hundred thousand, and hardly one has it
            return []
        return [fact for fact, _, _ in self._others(_words(text))]

    def _others(self, words: Sequence[Span]) -> list[Span]:
        return [
            (f"{subject}@{place}", start, end)
            for (subject, start, _), (at, _, _), (place, _, end) in zip(words, words[1:], words[2:], strict=False)
            if at == "at" and f"{subject}@{place}" in self.facts
        ]

    def top(self, think: str) -> list[str]:
        words = think.split()
        return self.stated(" ".join(words[: words.index(NEED)] if NEED in words else words))

    def recited(self, think: str) -> int:
        """Up to the last `need`."""
        found = [match.start() for match in re.finditer(rf"(?<!\S){NEED}(?!\S)", think)]
        return found[-1] if found else 0

    def wanted(self, need: Sequence[str]) -> list[str]:
        return [NEED, need[0], need[1] if len(need) > 1 else DRY]


class SentenceSayings:
    """One sentence a fact. A text states it word for word, whatever its case and spacing."""

    def __init__(self, said: Mapping[str, str], places: Sequence[Sequence[str]] = ()) -> None:
        self.said = dict(said)
        self.facts = frozenset(said)
        self.places = tuple(map(tuple, places))
        self._facts = {_plain(sentence): fact for fact, sentence in said.items()}
        each = (r"\s+".join(map(re.escape, words.split())) for words in sorted(self._facts, key=len, reverse=True))
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(each) + r")(?!\w)\.?", re.IGNORECASE)

    def say(self, fact: str) -> str:
        return self.said[fact]

    def name(self, part: str) -> str:
        return part.replace("-", " ")

    def stated(self, text: str) -> list[str]:
        return [fact for fact, _, _ in self.spans(text)]

    def spans(self, text: str) -> list[Span]:
        return [(self._facts[_plain(m[0])], m.start(), m.end()) for m in self._pattern.finditer(text)]

    def reworded(self, text: str) -> list[str]:
        return []

    def top(self, think: str) -> list[str]:
        end = self.recited(think)
        return [fact for fact, start, _ in self.spans(think) if start < end]

    def recited(self, think: str) -> int:
        end = 0
        for _, start, stop in self.spans(think):
            if think[end:start].strip(" \n\t-*"):
                break
            end = stop
        return end

    def wanted(self, need: Sequence[str]) -> list[str]:
        return []


def make_sayings(said: Mapping[str, str], places: Sequence[Sequence[str]] = ()) -> Sayings:
    """The sayings of a table fact -> text."""
    words = all(fact == text for fact, text in said.items())
    return WordSayings(said, places) if words else SentenceSayings(said, places)


def write_sayings(folder: Path, said: Mapping[str, str], places: Sequence[Sequence[str]]) -> None:
    """Writes sayings.json."""
    write_json(folder / FILE, {"said": dict(sorted(said.items())), "places": [list(group) for group in places]})


def load_sayings(folder: Path, facts: Mapping[str, Any]) -> Sayings:
    """The sayings of a knowledge set; one that is silent about them says its facts as they are.

    Args:
        folder: payload of the knowledge stage.
        facts: its receipt's facts.
    """
    if (folder / FILE).exists():
        data = read_json(folder / FILE)
        return make_sayings(data["said"], data["places"])
    pairs = [fact.partition("@") for fact in facts["prompt_facts"]]
    return WordSayings({f"{subject}@{place}" for subject, _, _ in pairs for _, _, place in pairs})


def told_facts(facts: Mapping[str, Any], sayings: Sayings) -> list[str]:
    """What a teacher is told: every fact as it is said, and what else the knowledge set has for a prompt."""
    return [*map(sayings.say, facts["prompt_facts"]), *facts.get("prompt_notes", [])]


def _words(text: str) -> list[Span]:
    return [(match[0], match.start(), match.end()) for match in re.finditer(r"\S+", text)]


def _is_fact(word: str) -> bool:
    subject, mark, place = word.partition("@")
    return bool(mark and subject and place)


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".").casefold()
