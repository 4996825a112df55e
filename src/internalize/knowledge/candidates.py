"""Candidates: every claim worth a trial, from the vocabulary's combinations and from watched play.

Invariant: candidates are a function of (game as a player sees it, exploration settings); the game's rules,
plans and advice are never read, and equal claims from several sources become one candidate that names them
all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from internalize.errors import UserError
from internalize.games.protocol import Game
from internalize.knowledge.atoms import Atom, Origin, Provenance, merge
from internalize.knowledge.bench import Bench
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.knowledge.dipwheel.english import DipwheelEnglish
from internalize.knowledge.exploration import Explorer, explore
from internalize.knowledge.families import Family, Lexicon, LexiconOf
from internalize.knowledge.ringdip import RingDipLexicon

#: Game name -> its lexicon.
LEXICONS: Mapping[str, LexiconOf] = {"dipwheel": DipwheelLexicon, "ringdip": RingDipLexicon}
#: Lexicons in English of games that have words of their own.
ENGLISH: Mapping[str, LexiconOf] = {**LEXICONS, "dipwheel": DipwheelEnglish}


def lexicon_of(game: Game, english: bool = False) -> Lexicon:
    """The lexicon of a game; UserError if nobody wrote one."""
    known = ENGLISH if english else LEXICONS
    if game.name not in known:
        raise UserError(
            "no lexicon for this game: candidates can't be put into words",
            got=game.name,
            expected=" or ".join(sorted(LEXICONS)),
            fix="add the game's families and forms under internalize/knowledge",
        )
    return known[game.name](game)


@dataclass(frozen=True)
class Candidates:
    """Unverified atoms and the families that can mutate them, by name."""

    atoms: Sequence[Atom]
    families: Mapping[str, Family]


def candidates(bench: Bench, lexicon: Lexicon, episodes: int, seed: int) -> Candidates:
    """All candidates of the first round; those of the second are `lexicon.compose(verified atoms)`."""
    steps = explore(bench, episodes, seed)
    explorer = Explorer(bench, steps)
    families = {family.name: family for family in (*lexicon.families(), *lexicon.composites(), *explorer.families())}
    atoms = [atom for family in lexicon.families() for atom in family.product()]
    for step in (*lexicon.sweep(bench), *steps):
        origin = Provenance.of("exploration", step.detail)
        atoms += [families[name].atom(terms, origin) for name, terms in lexicon.notice(step)]
    return Candidates(_first_sightings(merge([*atoms, *explorer.proposals()])), families)


def _first_sightings(atoms: Sequence[Atom]) -> list[Atom]:
    """Keeps one origin of each sort: the first sighting stands for all later ones."""
    kept = []
    for atom in atoms:
        first: dict[str, Origin] = {}
        for origin in atom.provenance.origins:
            first.setdefault(origin.origin, origin)
        provenance = Provenance(origins=list(first.values()), parents=atom.provenance.parents)
        kept.append(atom.model_copy(update={"provenance": provenance}))
    return kept
