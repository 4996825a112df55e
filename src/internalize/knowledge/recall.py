"""Recall forms: how each verified atom is asked for, in the closed vocabulary.

Invariant: an expressible form has no word outside the game's vocabulary; a false claim is used only if the
trials refuted it; a form that could tell a held-out fact is held out, whichever atom it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from internalize.knowledge.atoms import Atom, Form, Recall
from internalize.knowledge.families import Lexicon

#: False claims that one atom gets, at most.
MAX_FALSE = 6


class Recaller:
    """Makes the forms of atoms. `mutants` gives an atom's mutated claims with their verdicts."""

    def __init__(
        self,
        lexicon: Lexicon,
        words: Collection[str],
        mutants: Callable[[Atom], Sequence[Atom]],
        held_subjects: Collection[str],
        held_forms: Collection[Form],
    ) -> None:
        self.lexicon = lexicon
        self.words = frozenset(words)  # empty: an open vocabulary, which can say everything
        self.mutants = mutants
        self.held_subjects = frozenset(held_subjects)
        self.held_forms = frozenset(held_forms)

    def forms(self, atom: Atom) -> list[Recall]:
        """Every form of a verified atom, true ones first, then false claims."""
        return [self._marked(atom, form) for form in (*self.lexicon.forms(atom), *self._claims(atom))]

    def _claims(self, atom: Atom) -> Iterator[Recall]:
        for wording, words in self.lexicon.claims(atom):
            yield Recall(
                form="claimform",
                wording=wording,
                prompt=f"claim {words}",
                answer="true",
                label=True,
                fact=atom.fact,
            )
        refuted = [mutant for mutant in self.mutants(atom) if mutant.status == "refuted"]
        for mutant in refuted[:MAX_FALSE]:
            for wording, words in self.lexicon.claims(mutant):
                yield Recall(form="claimform", wording=wording, prompt=f"claim {words}", answer="false", label=False)

    def _marked(self, atom: Atom, form: Recall) -> Recall:
        words = f"{form.prompt} {form.answer}".split()
        said = {word.partition("@")[0] for word in words}
        held = atom.held_out.held or form.form in self.held_forms or bool(said & self.held_subjects)
        expressible = form.expressible and (not self.words or all(word in self.words for word in words))
        return form.model_copy(update={"held_out": held, "expressible": expressible})


def recall_rows(atoms: Sequence[Atom]) -> Iterator[dict[str, Any]]:
    """The rows of `recall.jsonl`: every form with its atom's id, kind and family."""
    for atom in atoms:
        for form in atom.recall:
            yield {"atom": atom.id, "kind": atom.kind, "family": atom.family, **form.model_dump(mode="json")}
