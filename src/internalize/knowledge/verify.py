"""Trials: the machine that verifies a claim or refutes it.

Invariant: a refuted claim comes with an act list after which it fails, and `replay` of that list fails again;
a verified claim held in every counted trial, and no claim that contradicts it survived the same trials.

Half of the trials sample: a random context, the nearest state in the precondition, one step. The other half
attack: they search the neighbourhood of the context for a step that breaks the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from internalize.games.protocol import Game
from internalize.knowledge.atoms import Atom, Counterexample, Verdict
from internalize.knowledge.bench import Aim, Bench, Spot
from internalize.knowledge.dsl import Experiment, Judgement, judge, satisfied
from internalize.seeds import rng

#: Failed trials after which a claim is given up.
MAX_FAILURES = 3

#: Trials without one applicable step after which a claim is called vacuous.
PATIENCE = 10

#: Steps that one attacking trial may try.
ATTACKS = 16

#: Order in which the findings of one trial outrank each other.
_RANK = {
    Judgement.INAPPLICABLE: 0,
    Judgement.NONDISCRIMINATING: 1,
    Judgement.HELD: 2,
    Judgement.FAILED: 3,
}


@dataclass(frozen=True)
class Trial:
    """What one trial found, and the acts that show it (None if nothing was applicable)."""

    judgement: Judgement
    evidence: Counterexample | None = None


class Verifier:
    """Tries claims about one game. Equal (game, seed, trials) give equal verdicts."""

    def __init__(self, game: Game, *, trials: int = 20, min_counted: int = 5, seed: int = 0) -> None:
        self.bench = Bench(game, seed)
        self.trials = trials
        self.min_counted = min_counted
        self.seed = seed
        self._verdicts: dict[str, Verdict] = {}

    def verdict(self, atom: Atom) -> Verdict:
        """The verdict on a claim; the negative control is `control`'s part. Equal claims are tried once."""
        if atom.hash not in self._verdicts:
            self._verdicts[atom.hash] = self._verdict(atom)
        return self._verdicts[atom.hash]

    def control(self, atom: Atom, mutants: Sequence[Atom]) -> Verdict:
        """The verdict on a claim, `weak` instead of `verified` unless every mutated claim is refuted."""
        verdict = self.verdict(atom)
        if verdict.status != "verified":
            return verdict
        survivors = [mutant.id for mutant in mutants if self.verdict(mutant).status != "refuted"]
        status: Literal["verified", "weak"] = "weak" if survivors or not mutants else "verified"
        return verdict.model_copy(update={"status": status, "mutants": len(mutants), "survivors": survivors})

    def _verdict(self, atom: Atom) -> Verdict:
        found: list[Trial] = []
        failures: list[Counterexample] = []
        for index in range(self.trials * atom.test.effort):
            trial = self._trial(atom, index)
            found.append(trial)
            if trial.judgement is Judgement.FAILED and trial.evidence is not None:
                failures.append(trial.evidence)
            hopeless = len(found) >= PATIENCE and all(t.judgement is Judgement.INAPPLICABLE for t in found)
            if hopeless or len(failures) >= MAX_FAILURES:
                break
        count = {kind: sum(trial.judgement is kind for trial in found) for kind in Judgement}
        counted = count[Judgement.HELD] + count[Judgement.FAILED]
        example = self._shortest(atom.test, failures)
        status: Literal["verified", "refuted", "unstable", "vacuous"]
        if failures:
            status = "refuted" if example is not None else "unstable"
        else:
            status = "verified" if counted >= self.min_counted else "vacuous"
        return Verdict(
            status=status,
            trials=len(found),
            applicable=len(found) - count[Judgement.INAPPLICABLE],
            nondiscriminating=count[Judgement.NONDISCRIMINATING],
            counted=counted,
            held=count[Judgement.HELD],
            counterexample=example or (failures[0] if failures else None),
        )

    def _trial(self, atom: Atom, index: int) -> Trial:
        levels = atom.scope.levels
        turn, place = divmod(index, len(levels))
        spot = self.bench.context(atom.test, levels[place], index)
        if spot is None:
            return Trial(Judgement.INAPPLICABLE)
        aim: Aim = "nearest" if turn % 2 == 0 else "goal" if turn % 4 == 1 else "around"
        draw = rng("knowledge", self.seed, "trial", index)
        best = Trial(Judgement.INAPPLICABLE)
        choices = atom.test.choices()
        steps = 0
        for at in self.bench.reach(spot, atom.test, draw, aim):
            for choice in draw.sample(choices, len(choices)):
                steps += 1
                trial = self._attempt(atom.test, at, choice)
                if _RANK[trial.judgement] > _RANK[best.judgement]:
                    best = trial
                enough = best.judgement is not Judgement.INAPPLICABLE and (aim == "nearest" or steps >= ATTACKS)
                if best.judgement is Judgement.FAILED or enough:
                    return best
        return best

    def _attempt(self, test: Experiment, at: Spot, choice: tuple[str, ...]) -> Trial:
        before = self.bench.walk(at, test.setup)
        after = self.bench.walk(before, choice)
        if before is None or after is None:
            return Trial(Judgement.INAPPLICABLE)
        evidence = Counterexample(
            level=at.level,
            seed=at.seed,
            actions=list(after.actions),
            setup_at=len(at.actions),
            do_at=len(before.actions),
        )
        return Trial(judge(test, before.probes, after.probes), evidence)

    def _shortest(self, test: Experiment, failures: Sequence[Counterexample]) -> Counterexample | None:
        """The shortest failing act list: leaves out, one by one, the acts that the failure does not need."""
        standing = [example for example in failures if replay(self.bench, test, example) is Judgement.FAILED]
        if not standing:
            return None
        best = min(standing, key=lambda example: len(example.actions))
        position = 0
        while position < best.setup_at:
            shorter = Counterexample(
                level=best.level,
                seed=best.seed,
                actions=best.actions[:position] + best.actions[position + 1 :],
                setup_at=best.setup_at - 1,
                do_at=best.do_at - 1,
            )
            if replay(self.bench, test, shorter) is Judgement.FAILED:
                best = shorter
            else:
                position += 1
        return best


def replay(bench: Bench, test: Experiment, example: Counterexample) -> Judgement:
    """Plays an act list from the start and judges its step: FAILED reproduces a counterexample.

    INAPPLICABLE if the game refuses an act or the list does not lead through the precondition of the test.
    """
    start = bench.start(example.level, example.seed)
    at = bench.walk(start, example.actions[: example.setup_at])
    before = bench.walk(at, example.actions[example.setup_at : example.do_at])
    after = bench.walk(before, example.actions[example.do_at :])
    performed = tuple(example.actions[example.do_at :])
    as_designed = example.actions[example.setup_at : example.do_at] == test.setup and performed in test.choices()
    if at is None or before is None or after is None or not as_designed:
        return Judgement.INAPPLICABLE
    if not (satisfied(test.start, start.probes) and satisfied(test.pre, at.probes)):
        return Judgement.INAPPLICABLE
    return judge(test, before.probes, after.probes)
