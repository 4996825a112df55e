"""Counts, coverage and the readable report of a knowledge set.

Invariant: everything here is counted from the ledger and the atoms, nothing is stated twice by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from internalize.knowledge.atoms import FORMS, KINDS, STATUSES, Atom
from internalize.knowledge.families import Lexicon


def counts(atoms: Sequence[Atom]) -> dict[str, dict[str, int]]:
    """Claims by kind and status, for kinds that occur; every status has its column."""
    table = Counter((atom.kind, atom.status) for atom in atoms)
    occurring = {kind for kind, _ in table}
    return {kind: {status: table[kind, status] for status in STATUSES} for kind in KINDS if kind in occurring}


def coverage(atoms: Sequence[Atom], lexicon: Lexicon) -> dict[str, Any]:
    """For each dimension of the vocabulary: atoms that speak of each value, and the values that none speaks
    of."""
    result: dict[str, Any] = {}
    for name, values in lexicon.dimensions.items():
        table = Counter(value for atom in atoms for value in lexicon.mentions(atom, name))
        per_value = {value: table[value] for value in values}
        missing = [value for value, number in per_value.items() if not number]
        result[name] = {"atoms": per_value, "missing": missing}
    return result


def report(facts: Mapping[str, Any], ledger: Sequence[Atom], atoms: Sequence[Atom], covered: Mapping[str, Any]) -> str:
    """`report.md`: what was tried, what stands, what is held out. `facts` are those of the stage's
    receipt."""
    tried = f"{facts['candidates']} candidates and {facts['mutants']} mutated claims were tried"
    stand = f"{facts['atoms_verified']} atoms are verified, {facts['atoms_held_out']} of them held out"
    origins = Counter(origin.origin for atom in ledger for origin in atom.provenance.origins)
    standing = Counter(origin.origin for atom in atoms for origin in atom.provenance.origins)
    sections = [
        ["# Knowledge set"],
        [f"Game `{facts['game']}`: {tried}; {stand}."],
        ["## Facts for the prompt"],
        [_ticked(facts["prompt_facts"])],
        [f"Held out from training: {_ticked(facts['held_out_facts']) or 'none'}."],
        ["## Candidates by kind and verdict"],
        _table(["kind", *STATUSES], [[kind, *row.values()] for kind, row in facts["counts"].items()]),
        ["## Who proposed them"],
        _table(
            ["origin", "claims", "verified"],
            [[name, n, standing[name]] for name, n in sorted(origins.items())],
        ),
        ["## Coverage (verified atoms)"],
        _table(
            ["dimension", "atoms by value", "missing"],
            [_covered(name, part) for name, part in covered.items()],
        ),
        ["## Recall forms"],
        _table(["form", "rows", "expressible", "of these held out"], [_formed(name, atoms) for name in FORMS]),
    ]
    doubtful = [atom for atom in ledger if atom.status in ("weak", "unstable", "vacuous") and _proposed(atom)]
    if doubtful:
        sections += [["## Neither verified nor refuted"]]
        sections += [[f"- {atom.status}: {atom.claim} (`{atom.id}`)" for atom in doubtful]]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _proposed(atom: Atom) -> bool:
    return any(origin.origin != "mutation" for origin in atom.provenance.origins)


def _covered(name: str, part: Mapping[str, Any]) -> list[Any]:
    return [
        name,
        " ".join(f"{value}:{n}" for value, n in part["atoms"].items()),
        " ".join(part["missing"]) or "-",
    ]


def _formed(name: str, atoms: Sequence[Atom]) -> list[Any]:
    forms = [form for atom in atoms for form in atom.recall if form.form == name]
    expressible = [form for form in forms if form.expressible]
    return [name, len(forms), len(expressible), sum(form.held_out for form in expressible)]


def _ticked(words: Sequence[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]
