"""The knowledge stage: candidates, trials, verdicts, recall forms.

Invariant: prompt facts are read off verified atoms and nowhere else; every claim that was tried, true or
false, is in the ledger; equal settings give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from internalize.errors import StudyError, UserError
from internalize.files import write_json, write_jsonl, write_text
from internalize.games import make_game
from internalize.games.protocol import Game
from internalize.knowledge.atoms import Atom, merge
from internalize.knowledge.candidates import candidates, lexicon_of
from internalize.knowledge.families import Family, Lexicon
from internalize.knowledge.holdout import HoldOutSettings, check_subjects, mark
from internalize.knowledge.recall import Recaller, recall_rows
from internalize.knowledge.summary import counts, coverage, report
from internalize.knowledge.verify import Verifier
from internalize.language.sayings import write_sayings

Progress = Callable[[str], None]

#: Claims between two progress messages.
REPORT_EVERY = 200


class ExplorationSettings(BaseModel):
    """Study file: `knowledge.exploration`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    episodes: int = Field(default=200, ge=1)
    """Random episodes that are watched for candidates."""
    seed: int = 0


class KnowledgeSettings(BaseModel):
    """Study file: `knowledge`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    trials: int = Field(default=20, ge=1)
    """Trials a claim, at an effort of 1."""
    min_counted: int = Field(default=5, ge=1)
    """Applicable and discriminating trials that a verified claim needs."""
    seed: int = 0
    held_out: HoldOutSettings = HoldOutSettings()
    exploration: ExplorationSettings = ExplorationSettings()
    wording: Literal["sentences"] | None = None
    """`sentences`: said in English, to a model with an open vocabulary; None: in the game's own words."""


def build(folder: Path, spec: Mapping[str, Any], inputs: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Writes atoms.jsonl, ledger.jsonl, recall.jsonl, coverage.json, sayings.json and report.md into `folder`.

    Args:
        spec: `game` (kind and its settings) and `knowledge` (`KnowledgeSettings`).
        inputs: none are used.

    Returns: Facts: game, candidates, mutants, counts (kind -> status -> claims), prompt_facts and
    held_out_facts (sorted fact words), atoms_verified, atoms_held_out and, where the language is open, prompt_notes
    (sentences for the prompt besides the facts).

    Raises:
        UserError: bad settings, or the verified atoms do not give one fact a subject.
    """
    game, settings = _settings(spec)
    english = settings.wording == "sentences"
    lexicon = lexicon_of(game, english)
    held = settings.held_out
    check_subjects(held, lexicon.subjects())
    verifier = Verifier(game, trials=settings.trials, min_counted=settings.min_counted, seed=settings.seed)
    proposed = candidates(verifier.bench, lexicon, settings.exploration.episodes, settings.exploration.seed)
    tested = Tested(verifier, proposed.families, progress)
    first = tested.run(proposed.atoms, "candidates")
    composed = tested.run(_new(lexicon.compose(_verified(first)), first), "composed candidates")
    tried = [*first, *composed]

    atoms = mark(_verified(tried), held)
    recaller = Recaller(lexicon, () if english else game.words(), tested.mutants, held.subjects, held.forms)
    atoms = [atom.model_copy(update={"recall": recaller.forms(atom)}) for atom in atoms]
    ledger = merge([*tried, *tested.mutated()])
    covered = coverage(atoms, lexicon)
    facts = {
        "game": game.name,
        "candidates": len(tried),
        "mutants": len(ledger) - len(tried),
        "counts": counts(tried),
        "prompt_facts": _prompt_facts(atoms, lexicon),
        "held_out_facts": sorted(atom.fact for atom in atoms if atom.fact and atom.held_out.held),
        "atoms_verified": len(atoms),
        "atoms_held_out": sum(atom.held_out.held for atom in atoms),
        **({"prompt_notes": notes} if (notes := list(lexicon.notes(atoms))) else {}),
    }
    write_jsonl(folder / "atoms.jsonl", [atom.model_dump(mode="json") for atom in atoms])
    write_jsonl(folder / "ledger.jsonl", map(ledger_row, ledger))
    write_jsonl(folder / "recall.jsonl", recall_rows(atoms))
    write_json(folder / "coverage.json", covered)
    write_sayings(folder, lexicon.sayings(), lexicon.places())
    write_text(folder / "report.md", report(facts, ledger, atoms, covered))
    progress(f"{facts['candidates']} candidates, {facts['atoms_verified']} verified atoms")
    return facts


class Tested:
    """Claims with their verdicts, and the mutated claims that they were held against."""

    __test__ = False  # pytest takes a class of this name for tests

    def __init__(self, verifier: Verifier, families: Mapping[str, Family], progress: Progress) -> None:
        self.verifier = verifier
        self.families = families
        self.progress = progress
        self._mutants: dict[str, list[Atom]] = {}

    def run(self, atoms: Sequence[Atom], what: str) -> list[Atom]:
        """The atoms with their verdicts, the negative control included."""
        done = []
        for number, atom in enumerate(atoms, start=1):
            verdict = self.verifier.verdict(atom)
            if verdict.status == "verified":
                mutants = merge(self.families[atom.family].mutants(atom))
                verdict = self.verifier.control(atom, mutants)
                self._mutants[atom.id] = [
                    mutant.model_copy(update={"verdict": self.verifier.verdict(mutant)}) for mutant in mutants
                ]
            done.append(atom.model_copy(update={"verdict": verdict}))
            if number % REPORT_EVERY == 0 or number == len(atoms):
                self.progress(f"{what}: {number} of {len(atoms)} tried")
        return done

    def mutants(self, atom: Atom) -> Sequence[Atom]:
        """The mutated claims of an atom that `run` found verified or weak."""
        return self._mutants.get(atom.id, [])

    def mutated(self) -> list[Atom]:
        """All mutated claims, in the order of their atoms."""
        return [mutant for mutants in self._mutants.values() for mutant in mutants]


def ledger_row(atom: Atom) -> dict[str, Any]:
    """The row of `ledger.jsonl` for one claim: what was claimed, by whom, and what the trials said."""
    return atom.model_dump(mode="json", exclude={"recall", "uses", "held_out", "subjects", "terms"}, exclude_none=True)


def _settings(spec: Mapping[str, Any]) -> tuple[Game, KnowledgeSettings]:
    try:
        settings = KnowledgeSettings.model_validate(spec.get("knowledge", {}))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("knowledge", *first["loc"])))
        raise StudyError(first["msg"], where=place, got=repr(first.get("input"))) from error
    game = dict(spec["game"])
    return make_game(game.pop("kind"), **game), settings


def _verified(atoms: Sequence[Atom]) -> list[Atom]:
    return [atom for atom in atoms if atom.status == "verified"]


def _new(atoms: Sequence[Atom], known: Sequence[Atom]) -> list[Atom]:
    hashes = {atom.hash for atom in known}
    return [atom for atom in merge(list(atoms)) if atom.hash not in hashes]


def _prompt_facts(atoms: Sequence[Atom], lexicon: Lexicon) -> list[str]:
    """The fact tokens of the verified atoms, exactly one a subject."""
    facts = sorted(atom.fact for atom in atoms if atom.fact)
    told = sorted(fact.partition("@")[0] for fact in facts)
    if told != sorted(lexicon.subjects()):
        missing = sorted(set(lexicon.subjects()) - set(told))
        raise UserError(
            "the verified atoms do not give one fact a subject",
            where="knowledge",
            expected=f"one fact each for {' '.join(lexicon.subjects())}",
            got=f"{' '.join(facts)}; missing: {' '.join(missing) or 'none'}",
            fix="raise knowledge.trials",
        )
    return facts
