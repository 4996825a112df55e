"""What a think commits itself to: the facts it states and the call that follows from them.

Invariant: everything is read off words; the hidden rules are not consulted. A think without `need`, or
without the facts that its need calls for, implies no call.
"""

from __future__ import annotations

from collections.abc import Mapping

NEED, DRY = "need", "dry"


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


def falsehoods(words: str, places: Mapping[str, str]) -> list[str]:
    """Facts in a think that the knowledge set refutes; `places` is its subject -> place."""
    return [f"{s}@{place}" for s, place in _all(words) if places.get(s, place) != place]


def truths(words: str, places: Mapping[str, str]) -> list[str]:
    """Verified facts that a think states, in order, each once."""
    return list(dict.fromkeys(f"{s}@{place}" for s, place in _all(words) if places.get(s) == place))


def before_need(words: str) -> int:
    """Number of words before the last `need`; 0 without one."""
    said = words.split()
    return len(said) - 1 - said[::-1].index(NEED) if NEED in said else 0


def _all(words: str) -> list[tuple[str, str]]:
    pairs = (word.partition("@") for word in words.split())
    return [(subject, place) for subject, mark, place in pairs if mark and subject and place]
