"""What is kept from training: subjects, a drawn fraction of the derived atoms, and forms.

Invariant: an atom that a held-out fact can be read from is held out with it, and the draw depends on the
atom's id alone, so adding candidates never moves an atom from one side to the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from internalize.errors import StudyError
from internalize.knowledge.atoms import Atom, Form, HeldOut
from internalize.seeds import derive


class HoldOutSettings(BaseModel):
    """Study file: `knowledge.held_out`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    subjects: list[str] = Field(default_factory=list)
    """Subjects whose facts, and everything derived from them, are never trained."""
    atom_fraction: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the derived atoms that is never trained, whatever their subject."""
    forms: list[Form] = Field(default=["paraphrase"])
    """Forms that are never trained, whatever the atom."""


def check_subjects(settings: HoldOutSettings, subjects: Sequence[str]) -> None:
    """StudyError if `settings` holds out a subject that the game's vocabulary (`subjects`) does not know."""
    unknown = sorted(set(settings.subjects) - set(subjects))
    if unknown:
        raise StudyError(
            "unknown subject to hold out",
            where="knowledge.held_out.subjects",
            got=" ".join(unknown),
            expected=" ".join(subjects),
        )


def mark(atoms: Sequence[Atom], settings: HoldOutSettings) -> list[Atom]:
    """The atoms with `held_out` set."""
    facts = [atom for atom in atoms if atom.fact and set(atom.subjects) & set(settings.subjects)]
    return [atom.model_copy(update={"held_out": _held(atom, settings, facts)}) for atom in atoms]


def _held(atom: Atom, settings: HoldOutSettings, facts: Sequence[Atom]) -> HeldOut:
    if set(atom.subjects) & set(settings.subjects) or any(_betrays(atom, fact) for fact in facts):
        return HeldOut(held=True, why="subject")
    drawn = derive("knowledge", "held_out", atom.id) / 2**64 < settings.atom_fraction
    return HeldOut(held=True, why="fraction") if atom.fact is None and drawn else HeldOut()


def _betrays(atom: Atom, fact: Atom) -> bool:
    """Whether an atom without the subject still says what the fact's call does to what the fact is about."""
    if atom.fact is not None:
        return False
    calls = {step for step in fact.test.do if isinstance(step, str)}
    looks = {name for op in fact.test.expect for name in op.reads()}
    return bool(calls & atom.test.calls()) and bool(looks & {name for op in atom.test.expect for name in op.reads()})
