"""Dipwheel in English, for models with an open vocabulary (`knowledge.wording: sentences`).

Invariant: candidates, trials and verdicts are those of the closed vocabulary; only how verified atoms are said differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from internalize.games.dipwheel.state import HALVES
from internalize.knowledge.atoms import Atom, Recall, Wording
from internalize.knowledge.dipwheel.lexicon import DipwheelLexicon

_BLANK = "____"
#: What kind of subject -> (sentence, the same otherwise, as a note, question); `{s}` is the subject, `{p}` the place.
_TEXTS = {
    "half": (
        "A dip at {p} fills the {s} half of the canvas.",
        "The {s} half of the canvas is filled by a dip at {p}.",
        "{s} half: {p}.",
        "Where does a dip fill the {s} half of the canvas?",
    ),
    "wipe": (
        "A dip at {p} wipes the canvas blank.",
        "The canvas is wiped blank by a dip at {p}.",
        "wipe: {p}.",
        "Where does a dip wipe the canvas blank?",
    ),
    "trap": (
        "A dip at {p} ends the game.",
        "The game is ended by a dip at {p}.",
        "end of the game: {p}.",
        "Where does a dip end the game?",
    ),
    "colour": (
        "Pot {p} holds {s} paint.",
        "The {s} paint is in pot {p}.",
        "{s}: pot {p}.",
        "Which pot holds {s} paint?",
    ),
}


class DipwheelEnglish(DipwheelLexicon):
    """See `knowledge.families.Lexicon`."""

    def sayings(self) -> Mapping[str, str]:
        return {fact: _said(fact, 0) for fact in super().sayings()}

    def forms(self, atom: Atom) -> Sequence[Recall]:
        if atom.fact is None:
            return [Recall(form="declarative", wording="other", prompt="", answer=atom.claim)]
        fact = atom.fact
        place, question = fact.partition("@")[2], _said(fact, 3)
        gap = _said(f"{fact.partition('@')[0]}@{_BLANK}", 0)
        return [
            Recall(form="declarative", wording="think", prompt=question, answer=_said(fact, 0), fact=fact),
            Recall(form="declarative", wording="other", prompt=question, answer=_said(fact, 2), fact=fact),
            Recall(form="qa", wording="think", prompt=question, answer=place, fact=fact),
            Recall(form="cloze", wording="think", prompt=gap, answer=place, fact=fact),
            Recall(form="paraphrase", wording="other", prompt=question, answer=_said(fact, 1), fact=fact),
        ]

    def claims(self, atom: Atom) -> Sequence[tuple[Wording, str]]:
        if atom.fact is None:
            return []
        return [("think", _said(atom.fact, 0)), ("other", _said(atom.fact, 2))]


def _said(fact: str, which: int) -> str:
    subject, _, place = fact.partition("@")
    kind = "half" if subject in HALVES else subject if subject in _TEXTS else "colour"
    return _TEXTS[kind][which].format(s=subject, p=place)
