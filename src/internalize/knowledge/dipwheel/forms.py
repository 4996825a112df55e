"""Dipwheel atoms in words of its closed vocabulary.

Invariant: a form states its atom and nothing else; a play fact is one token in the wording of thinks
(`left@N`), three in the other wording (`left at N`), and its paraphrase (`at N is left`) is never the wording
of a trained form.

Questions: `ask left` (a fact), `blank left at` (its place), `claim left@N` (true or false), `ask pot:b dip:N`
(what a stroke does), `ask left red` (how to get it).
"""

from __future__ import annotations

from internalize.games.dipwheel.rules import COLOURS
from internalize.games.dipwheel.text import CELL_WORDS
from internalize.knowledge.atoms import Atom, Recall, Wording
from internalize.knowledge.dipwheel.families import CLEAR, DRY, choose, dip, painted

_CELL = dict(zip(("blank", *COLOURS), CELL_WORDS, strict=True))


def forms(atom: Atom) -> list[Recall]:
    """The forms that state a true atom. Atoms that no words of the vocabulary can say keep one English
    form."""
    if atom.fact is not None:
        return _fact(atom.fact)
    pair = _sides(atom)
    if pair is not None:
        return _pair(*pair)
    return [Recall(form="declarative", wording="other", prompt="", answer=atom.claim, expressible=False)]


def claims(atom: Atom) -> list[tuple[Wording, str]]:
    """What stands after `claim` for this atom, true or false, in each wording that can say it."""
    if atom.fact is not None:
        return [("think", atom.fact), ("other", atom.fact.replace("@", " at "))]
    pair = _sides(atom)
    return [("other", " is ".join(pair))] if pair else []


def _sides(atom: Atom) -> tuple[str, str] | None:
    """Left and right of "left is right" for the derived atoms that the vocabulary can say."""
    terms = atom.terms
    match atom.family:
        case "stroke":
            colour = [] if terms["colour"] == DRY else [terms["colour"]]
            return f"{choose(terms['pot'])} {dip(terms['station'])}", " ".join([terms["region"], *colour])
        case "plan":
            return f"{terms['region']} {terms['colour']}", f"{choose(terms['pot'])} {dip(terms['station'])}"
        case "layers":
            canvas = painted(CLEAR, terms["region1"], terms["colour1"])
            canvas = painted(canvas, terms["region2"], terms["colour2"])
            acts = [
                choose(terms["pot1"]),
                dip(terms["station1"]),
                choose(terms["pot2"]),
                dip(terms["station2"]),
            ]
            return " ".join(acts), " ".join(["C", *(_CELL[cell] for cell in canvas)])
    return None


def _fact(fact: str) -> list[Recall]:
    subject, place = fact.split("@")
    spoken = f"{subject} at {place}"
    return [
        Recall(form="declarative", wording="think", prompt=f"ask {subject}", answer=fact, fact=fact),
        Recall(form="declarative", wording="other", prompt=f"ask {subject}", answer=spoken, fact=fact),
        Recall(form="qa", wording="think", prompt=f"ask {subject}", answer=fact, fact=fact),
        Recall(form="qa", wording="other", prompt=f"ask {place}", answer=spoken, fact=fact),
        Recall(form="cloze", wording="other", prompt=f"blank {subject} at", answer=place, fact=fact),
        Recall(
            form="paraphrase",
            wording="other",
            prompt=f"ask {subject}",
            answer=f"at {place} is {subject}",
            fact=fact,
        ),
    ]


def _pair(left: str, right: str) -> list[Recall]:
    """The forms of "left is right"."""
    return [
        Recall(form="declarative", wording="other", prompt="tell", answer=f"{left} is {right}"),
        Recall(form="qa", wording="other", prompt=f"ask {left}", answer=right),
        Recall(form="cloze", wording="other", prompt=f"blank {left} is", answer=right),
        Recall(form="paraphrase", wording="other", prompt=f"ask {left}", answer=f"{right} is {left}"),
    ]
