"""Ring-and-dip claims in English: a sentence, another sentence for the same, a question, and an answer.

Invariant: what a family claims (its consequent) is in the answer and nowhere in the question.
"""

from __future__ import annotations

from internalize.knowledge.atoms import Atom, Recall, Wording
from internalize.knowledge.families import Terms

#: Family -> (sentence, other sentence, question, answer); `{where}` opens a sentence about one level.
_TEXTS: dict[str, tuple[str, str, str, str]] = {
    "move": (
        "{where}with the tool at {station}, {arrow} takes it to {to}.",
        "{where}{to} is one {arrow} away from {station}.",
        "{where}where does {arrow} take the tool from {station}?",
        "To {to}.",
    ),
    "stay": (
        "{where}with the tool at {station}, {arrow} {effect_here}.",
        "{where}at {station} the arrow {arrow} {effect_there}.",
        "{where}what does {arrow} do with the tool at {station}?",
        "{effect_answer}.",
    ),
    "load": (
        "{where}a click at column {click} of the strip loads paint {paint}.",
        "{where}paint {paint} is loaded by a click at column {click}.",
        "{where}which paint does a click at column {click} of the strip load?",
        "Paint {paint}.",
    ),
    "load_at": (
        "{where}with the tool at {station}, a click at column {click} of the strip loads paint {paint}.",
        "{where}at {station} too, paint {paint} is loaded by a click at column {click}.",
        "{where}with the tool at {station}, which paint does a click at column {click} load?",
        "Paint {paint}.",
    ),
    "dip": (
        "A dip at {station} paints the {region} of the canvas in the loaded paint.",
        "The {region} of the canvas is painted by a dip at {station}.",
        "What does a dip at {station} paint?",
        "The {region} of the canvas.",
    ),
    "stroke": (
        "{where}a dip at {station} with paint {paint} paints the {region} of the canvas {paint}.",
        "{where}the {region} of the canvas turns {paint} by a dip at {station} with that paint.",
        "{where}what does a dip at {station} with paint {paint} do?",
        "It paints the {region} of the canvas {paint}.",
    ),
    "tap": (
        "{where}a click on the small tool at {station} paints the {region} of the canvas in the loaded paint.",
        "{where}the {region} of the canvas is painted by the small tool at {station}.",
        "{where}what does the small tool at {station} paint?",
        "The {region} of the canvas.",
    ),
    "dab": (
        "{where}the small tool at {station} with paint {paint} paints the {region} of the canvas {paint}.",
        "{where}the {region} of the canvas turns {paint} by the small tool at {station} with that paint.",
        "{where}what does the small tool at {station} do with paint {paint}?",
        "It paints the {region} of the canvas {paint}.",
    ),
    "miss": (
        "{where}with the tool at {station}, a click at the small tool's place of {tap} {effect_canvas}.",
        "{where}clicking the small tool's place of {tap} from {station} {effect_canvas}.",
        "{where}with the tool at {station}, what does a click at the small tool's place of {tap} do?",
        "It {effect_canvas}.",
    ),
    "cells": (
        "{where}the target has {cells} cells of colour {paint}.",
        "{where}{cells} cells of the target are of colour {paint}.",
        "{where}how many cells of the target are of colour {paint}?",
        "{cells}.",
    ),
}
#: Facts as notes: the wording that no think and no question has.
_NOTES = {"dip": "dip, {station}: {region}."}
_BLANK = "____"
#: What a cloze leaves out, by family.
_LEFT_OUT = {
    "move": "to",
    "load": "paint",
    "load_at": "paint",
    "dip": "region",
    "stroke": "region",
    "tap": "region",
    "dab": "region",
    "cells": "cells",
}


def sentence(family: str, terms: Terms) -> str:
    """The claim as a sentence."""
    return _said(_TEXTS[family][0], terms)


def forms(atom: Atom) -> list[Recall]:
    """Statement, question, cloze and paraphrase of a true atom; an atom of another lexicon keeps its sentence."""
    texts = _TEXTS.get(atom.family)
    if texts is None:
        return [Recall(form="declarative", wording="other", prompt="", answer=atom.claim)]
    first, second, question, answer = (_said(text, atom.terms) for text in texts)
    made = [
        Recall(form="declarative", wording="think", prompt=question, answer=first, fact=atom.fact),
        Recall(form="qa", wording="other", prompt=question, answer=answer, fact=atom.fact),
        Recall(form="paraphrase", wording="other", prompt=question, answer=second, fact=atom.fact),
    ]
    if atom.family in _NOTES:
        note = _said(_NOTES[atom.family], atom.terms)
        made.insert(1, Recall(form="declarative", wording="other", prompt=question, answer=note, fact=atom.fact))
    slot = _LEFT_OUT.get(atom.family)
    if slot is not None:
        gap = _said(texts[0], {**atom.terms, slot: _BLANK})
        made.append(Recall(form="cloze", wording="think", prompt=gap, answer=str(atom.terms[slot]), fact=atom.fact))
    return made


def claims(atom: Atom) -> list[tuple[Wording, str]]:
    """The sentences to be judged true or false."""
    texts = _TEXTS.get(atom.family)
    return [] if texts is None else [("think", _said(texts[0], atom.terms)), ("other", _said(texts[1], atom.terms))]


def _said(text: str, terms: Terms) -> str:
    stays = terms.get("effect") in ("stays", "unchanged")
    words = {
        **{slot: str(value).replace("-", " ") for slot, value in terms.items()},
        "where": f"In level {terms['level']} " if terms.get("level") else "",
        "effect_here": "leaves it there" if stays else "moves it away",
        "effect_there": "has no use" if stays else "is of use",
        "effect_answer": "Nothing" if stays else "It moves it",
        "effect_canvas": "leaves the canvas as it is" if stays else "changes the canvas",
    }
    said = text.format(**words)
    return said[0].upper() + said[1:]
