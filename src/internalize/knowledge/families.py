"""Families: claims of one shape, with slots that vocabulary words fill.

Invariant: a mutant differs from its atom only in what is claimed to follow (the `consequent` slots), never in
the situation, so an atom and its mutant can't both be true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, Protocol, TypeAlias

from internalize.games.protocol import Game
from internalize.knowledge.atoms import Atom, Kind, Provenance, Recall, Scope, Use, Wording
from internalize.knowledge.bench import Bench, Spot
from internalize.knowledge.dsl import Experiment
from internalize.knowledge.ops import Condition

Terms: TypeAlias = Mapping[str, Any]

#: Mutated claims that one slot gives.
MAX_MUTANTS = 6


@dataclass(frozen=True)
class Draft:
    """What a family says about one filling of its slots."""

    claim: str
    kind: Kind
    levels: Sequence[int]
    test: Experiment
    subjects: Sequence[str] = ()
    fact: str | None = None


@dataclass(frozen=True)
class Family:
    """Claims of one shape. `slots` are the words that may fill each slot; `fits` refuses senseless
    combinations."""

    name: str
    game: str
    slots: Mapping[str, Sequence[Any]]
    consequent: Sequence[str]
    draft: Callable[[Terms], Draft]
    fits: Callable[[Terms], bool] = field(default=lambda terms: True)

    def atom(self, terms: Terms, provenance: Provenance) -> Atom:
        """The unverified atom for one filling."""
        draft = self.draft(terms)
        test = draft.test
        label = ".".join(_label(terms[slot]) for slot in self.slots)
        return Atom(
            id=f"{self.game}/{self.name}/{label}",
            claim=draft.claim,
            kind=draft.kind,
            family=self.name,
            terms=dict(terms),
            subjects=list(draft.subjects),
            fact=draft.fact,
            scope=Scope(game=self.game, levels=list(draft.levels)),
            test=test,
            provenance=provenance,
            uses=[Use(action=call, when=when(test.pre)) for call in test.do if isinstance(call, str)],
        )

    def product(self) -> Iterator[Atom]:
        """Every filling, as the generator proposes them."""
        origin = Provenance.of("generator", self.name)
        for values in product(*self.slots.values()):
            terms = dict(zip(self.slots, values, strict=True))
            if self.fits(terms):
                yield self.atom(terms, origin)

    def mutants(self, atom: Atom) -> list[Atom]:
        """The claims that differ from `atom` in one consequent slot, at most `MAX_MUTANTS` a slot.

        Claims that come out equal to it (by hash) are left out.
        """
        origin = Provenance.of("mutation", self.name, [atom])
        found = []
        for slot in self.consequent:
            others = [value for value in self.slots[slot] if value != atom.terms[slot]]
            fillings = [{**atom.terms, slot: value} for value in others]
            found += [self.atom(terms, origin) for terms in islice(filter(self.fits, fillings), MAX_MUTANTS)]
        return [mutant for mutant in found if mutant.hash != atom.hash]


@dataclass(frozen=True)
class Step:
    """One act of an exploration: the spots around it and where it was seen."""

    before: Spot
    word: str
    after: Spot
    detail: str


class Lexicon(Protocol):
    """What a game's vocabulary can say: everything here is words and shapes, nothing is knowledge of the
    rules."""

    @property
    def dimensions(self) -> Mapping[str, Sequence[str]]:
        """Dimension -> the words that coverage counts over."""

    def mentions(self, atom: Atom, dimension: str) -> set[str]:
        """The words of one dimension that an atom speaks of."""

    def families(self) -> Sequence[Family]:
        """Families whose every filling is a candidate."""

    def subjects(self) -> Sequence[str]:
        """Words that play facts are about, one fact each."""

    def places(self) -> Sequence[Sequence[str]]:
        """Groups of places that facts are about; a subject's place is one of a group."""

    def sayings(self) -> Mapping[str, str]:
        """Every fact word that could be true, and how it is said to a model (a closed vocabulary: the word itself)."""

    def notes(self, verified: Sequence[Atom]) -> Sequence[str]:
        """What a prompt tells besides the facts."""

    def sweep(self, bench: Bench) -> Sequence[Step]:
        """Steps to watch besides random play; none where random play meets every situation."""

    def notice(self, step: Step) -> Sequence[tuple[str, Terms]]:
        """(family name, terms) of the claims that one observed step suggests."""

    def compose(self, verified: Sequence[Atom]) -> Sequence[Atom]:
        """Further candidates that should follow from verified atoms."""

    def composites(self) -> Sequence[Family]:
        """The families that `compose` fills."""

    def forms(self, atom: Atom) -> Sequence[Recall]:
        """The forms that state a true `atom`, claimform aside."""

    def claims(self, atom: Atom) -> Sequence[tuple[Wording, str]]:
        """The words after `claim` that state an atom, true or false; none if the vocabulary has none."""


LexiconOf: TypeAlias = Callable[[Game], Lexicon]


def say(value: Any) -> str:
    """A JSON value in plain words, the items of a list one after the other."""
    return " ".join(map(say, value)) if isinstance(value, list) else str(value)


def when(conditions: Sequence[Condition]) -> str:
    """A precondition in short English, for the `uses` of an atom."""
    parts = []
    for condition in conditions:
        data = condition.model_dump()
        rest = [say(value) for name, value in data.items() if name not in ("op", "probe")]
        parts.append(" ".join([data["probe"], _VERBS.get(data["op"], data["op"]), *rest]))
    return " and ".join(parts) or "always"


_VERBS = {"eq": "is", "ne": "is not", "lt": "is below", "gt": "is above", "in": "is one of", "same": "equals"}


def _label(value: Any) -> str:
    return "+".join(map(_label, value)) if isinstance(value, list | tuple) else str(value)
