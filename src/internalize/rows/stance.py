"""What a think commits itself to: the facts it states and the call that follows from them.

Invariant: everything is read off words; the hidden rules are not consulted. A think without `need`, or
without the facts that its need calls for, implies no call; so thinks in free English imply none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from internalize.language.sayings import DRY, NEED, place_of, subject_of


def stated(words: str) -> dict[str, str]:
    """Subject -> place of the facts in a think; the last statement about a subject counts."""
    return {s: place for s, mark, place in (word.partition("@") for word in words.split()) if mark and s and place}


def need(words: str) -> tuple[str, str | None] | None:
    """(region, colour or None for a dry dip) that a think needs, from its last `need`;
    None if it names none."""
    said = words.split()
    if NEED not in said:
        return None
    at = len(said) - 1 - said[::-1].index(NEED)
    if len(said) < at + 3 or "@" in said[at + 1] or "@" in said[at + 2]:
        return None
    return said[at + 1], None if said[at + 2] == DRY else said[at + 2]


def implied_call(words: str, observation: str) -> str | None:
    """The call that a think's need and facts lead to, given the pot in hand (`pot p:b ..`);
    None if they lead to none."""
    wanted, facts = need(words), stated(words)
    if wanted is None or wanted[0] not in facts:
        return None
    region, colour = wanted
    if colour is not None:
        if colour not in facts:
            return None
        seen = observation.split()
        if f"p:{facts[colour]}" not in seen:
            return f"pot:{facts[colour]}"
    return f"dip:{facts[region]}"


def falsehoods(stated: Iterable[str], places: Mapping[str, str]) -> list[str]:
    """Of the facts that a think states, those that the knowledge set refutes; `places` is its subject -> place."""
    return [fact for fact in stated if places.get(subject_of(fact), place_of(fact)) != place_of(fact)]


def truths(stated: Iterable[str], places: Mapping[str, str]) -> list[str]:
    """Of the facts that a think states, the verified ones, in order, each once."""
    return list(dict.fromkeys(fact for fact in stated if places.get(subject_of(fact)) == place_of(fact)))
