"""Atoms: one claim about a game each, with its test, its verdict and the forms it is recalled in.

Invariant: `hash` is a function of what is claimed and where (`scope`, `test`) alone, not of words, origin or
verdict; two atoms with one hash are the same claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from internalize.files import digest
from internalize.knowledge.dsl import Experiment

STRICT = ConfigDict(extra="forbid", frozen=True)

Kind = Literal[
    "action_effect",
    "no_effect",
    "object_role",
    "initial_state",
    "goal",
    "goal_exclusion",
    "hazard",
    "budget",
    "level_fact",
    "invariant",
    "strategy",
]
Status = Literal["verified", "refuted", "unstable", "vacuous", "weak"]
Wording = Literal["think", "other"]
Form = Literal["declarative", "qa", "cloze", "claimform", "paraphrase"]

KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]
STATUSES: tuple[Status, ...] = Status.__args__  # type: ignore[attr-defined]
FORMS: tuple[Form, ...] = Form.__args__  # type: ignore[attr-defined]


class Scope(BaseModel):
    """Where a claim is made: a game and levels of it."""

    model_config = STRICT
    game: str
    levels: list[int] = Field(min_length=1)


class Counterexample(BaseModel):
    """Acts after which a claim fails: replayable from the start of (level, seed)."""

    model_config = STRICT
    level: int
    seed: int
    actions: list[str]
    """Call words, in order."""
    setup_at: int
    """Number of acts after which the precondition holds."""
    do_at: int
    """Number of acts before the ones that the claim is about."""


class Verdict(BaseModel):
    """What the trials say. Of the `counted` trials, `held` supported the claim and the rest broke it.

    A trial counts if it was applicable and discriminating: the claim and its null hypothesis predicted
    different outcomes, or the claim failed (then the outcome tells them apart from the truth, whatever they
    predicted).

    `verified`: all counted trials held, and there were enough. `refuted`: one failed, and its replay fails
    again. `unstable`: one failed and its replay does not. `vacuous`: too few trials counted. `weak`: it held,
    but so did a mutated claim that contradicts it, so its test proves nothing.
    """

    model_config = STRICT
    status: Status
    trials: int
    applicable: int
    nondiscriminating: int
    counted: int
    held: int
    counterexample: Counterexample | None = None
    mutants: int = 0
    """Mutated claims that were put to the same test."""
    survivors: list[str] = Field(default_factory=list)
    """Ids of mutated claims that the trials did not refute."""


Proposer = Literal["generator", "exploration", "composition", "mutation"]


class Origin(BaseModel):
    """Who proposed a claim: `generator` (all combinations of the vocabulary), `exploration` (seen in play),
    `composition` (follows from verified atoms) or `mutation` (made false on purpose)."""

    model_config = STRICT
    origin: Proposer
    detail: str = ""


class Provenance(BaseModel):
    """Origins of a claim and the ids of the atoms it was made from."""

    model_config = STRICT
    origins: list[Origin] = Field(min_length=1)
    parents: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, origin: Proposer, detail: str = "", parents: Iterable[Atom] = ()) -> Provenance:
        """Of a claim with one origin."""
        return cls(origins=[Origin(origin=origin, detail=detail)], parents=[atom.id for atom in parents])


class Recall(BaseModel):
    """One way to ask for an atom: prompt text and the answer text, in the words of the game's vocabulary.

    `fact` is the fact token that the row states (None for a derived atom or a false claim). `held_out` rows
    are for probes only. Text that the vocabulary cannot say is kept in English with `expressible` false.
    """

    model_config = STRICT
    form: Form
    wording: Wording
    prompt: str
    answer: str
    label: bool | None = None
    """For claimform: whether the claim is true."""
    fact: str | None = None
    held_out: bool = False
    expressible: bool = True


class Use(BaseModel):
    """A call that the atom bears on, and when."""

    model_config = STRICT
    action: str
    when: str


class HeldOut(BaseModel):
    """Whether the atom is kept from every training row, and why: its subject, or its place in the drawn
    fraction."""

    model_config = STRICT
    held: bool = False
    why: Literal["", "subject", "fraction"] = ""


class Atom(BaseModel):
    """One claim. `terms` are the words that fill the family's slots; `fact` is its token if it is a play
    fact."""

    model_config = STRICT
    id: str
    claim: str
    kind: Kind
    family: str
    terms: dict[str, Any]
    subjects: list[str] = Field(default_factory=list)
    """Words that a hold-out by subject looks at, for example `left`, `red`."""
    fact: str | None = None
    scope: Scope
    test: Experiment
    verdict: Verdict | None = None
    provenance: Provenance
    uses: list[Use] = Field(default_factory=list)
    recall: list[Recall] = Field(default_factory=list)
    held_out: HeldOut = HeldOut()

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def hash(self) -> str:
        """Canonical hash of the claim."""
        return digest({"game": self.scope.game, "levels": sorted(self.scope.levels), "test": self.test.canonical()})

    @property
    def status(self) -> Status | None:
        """The verdict's status; None before verification."""
        return self.verdict.status if self.verdict else None


def merge(atoms: list[Atom]) -> list[Atom]:
    """One atom a claim, in order of first appearance; later ones leave their origins and parents on the
    first."""
    first: dict[str, Atom] = {}
    for atom in atoms:
        known = first.get(atom.hash)
        if known is None:
            first[atom.hash] = atom
            continue
        origins = [*known.provenance.origins]
        origins += [origin for origin in atom.provenance.origins if origin not in origins]
        parents = sorted({*known.provenance.parents, *atom.provenance.parents} - {known.id})
        first[atom.hash] = known.model_copy(update={"provenance": Provenance(origins=origins, parents=parents)})
    return list(first.values())
